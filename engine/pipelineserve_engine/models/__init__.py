"""Getting a model's files: from a URI to a local folder in Hugging Face's layout."""

from pipelineserve.model_cache import default_cache_dir
from pipelineserve_engine.models.files import ModelFiles
from pipelineserve_engine.models.progress import Progress, SilentProgress
from pipelineserve_engine.models.resolve import resolve_model

__all__ = ["ModelFiles", "Progress", "SilentProgress", "default_cache_dir", "resolve_model"]
