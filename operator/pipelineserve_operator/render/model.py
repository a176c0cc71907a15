"""Where a pod has its model from, and the init container that fetches it if it must be fetched."""

from dataclasses import dataclass

from pipelineserve.api import ClaimUri, FileUri, HuggingFaceUri, ModelSpec, PypiUri
from pipelineserve_operator.render import places, volumes
from pipelineserve_operator.render.subject import JsonObject
from pipelineserve_operator.render.variables import literal
from pipelineserve_operator.render.volumes import Volume

_LINK = f"{places.LINK_FOLDER}/current"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """How the containers of a pod come to the model.

    Attributes:
        folder: what the engine loads.
        volumes: that the engine's containers mount.
        fetched_uri: what the init container makes `folder` of; None if the files are just there.
    """

    folder: str
    volumes: tuple[Volume, ...]
    fetched_uri: str | None = None


def model_source(model: ModelSpec) -> ModelSource:
    """The source of a resource's model. A GGUF file is converted, so it counts as fetched."""
    match model.source:
        case HuggingFaceUri() | PypiUri():
            return _fetched(model, model.uri)
        case FileUri(path):
            return _local(model, path)
        case ClaimUri(claim_name, path):
            folder = f"{places.CLAIM_FOLDER}/{path}".rstrip("/")
            claim = volumes.claim("model", places.CLAIM_FOLDER, claim_name, is_read_only=True)
            return _local(model, folder, claim)


def fetch_arguments(model: ModelSpec, uri: str) -> list[str]:
    """Arguments of `python -m pipelineserve_engine.models`."""
    revision = [f"--revision={literal(model.revision)}"] if model.revision else []
    cache = [f"--cache-dir={places.CACHE_FOLDER}", f"--link={_LINK}"]
    return [literal(uri), *revision, *cache]


def fetch_variables(model: ModelSpec) -> list[JsonObject]:
    """The access token, which no other container sees."""
    token = model.token_secret_ref
    if token is None:
        return []
    key = {"name": token.name, "key": token.key}
    return [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": key}}]


def _local(model: ModelSpec, path: str, *more: Volume) -> ModelSource:
    if path.lower().endswith(".gguf"):
        return _fetched(model, f"file://{path}", *more)
    return ModelSource(path, more)


def _fetched(model: ModelSpec, uri: str, *more: Volume) -> ModelSource:
    # A cache may be shared by pods of other revisions, so what this pod runs is a link of its own.
    link = volumes.empty("model-link", places.LINK_FOLDER, "1Mi")
    return ModelSource(_LINK, (*more, _cache(model), link), uri)


def _cache(model: ModelSpec) -> Volume:
    cache, name, path = model.cache, "model-cache", places.CACHE_FOLDER
    if cache is not None and cache.claim_name is not None:
        return volumes.claim(name, path, cache.claim_name, is_read_only=False)
    return volumes.empty(name, path, cache.size_limit if cache else None)
