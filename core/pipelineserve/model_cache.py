"""Where this user's downloaded models are kept."""

from collections.abc import Mapping
from pathlib import Path


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """PIPELINESERVE_CACHE, else pipelineserve in XDG_CACHE_HOME, else in ~/.cache."""
    if chosen := environ.get("PIPELINESERVE_CACHE"):
        return Path(chosen).expanduser()
    if xdg := environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "pipelineserve"
    home = environ.get("HOME")
    return (Path(home) if home else Path.home()) / ".cache" / "pipelineserve"
