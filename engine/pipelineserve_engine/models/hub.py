"""Checkpoints from the Hugging Face hub: safetensors, configuration and tokenizer, never code."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError: its client's own
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]  # the one that tqdm_class takes

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.models.files import PICKLE_ADVICE, has_pickled_weights_only
from pipelineserve_engine.models.progress import Progress, growth_task
from pipelineserve_engine.models.store import require_free_space

_WANTED = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "*.jinja",
)
# Subfolders hold other formats; "consolidated" repeats the same weights under other names.
_UNWANTED = ("*/*", "consolidated*")
# Where the library keeps the parts of unfinished files inside a local folder.
_PARTS_FOLDER = ".cache"


class _NoBar(tqdm):
    """The library's own bar, turned off: the caller's Progress shows the download."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]  # untyped there


def hub_api(environ: Mapping[str, str]) -> HfApi:
    """The hub with the token of `HF_TOKEN`, and with no token that was stored elsewhere."""
    return HfApi(token=environ.get("HF_TOKEN") or False)


def download_checkpoint(
    repo_id: str, revision: str | None, folder: Path, progress: Progress, *, api: HfApi
) -> str:
    """Fill `folder`, continuing what an interrupted try left there; returns the exact source.

    Raises:
        ModelUnavailableError: offline, not found, gated, or only pickled weights.
    """
    with _hub_errors(repo_id, revision):
        info = api.model_info(repo_id, revision=revision, files_metadata=True)
        sizes_bytes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        wanted = [name for name in sizes_bytes if _is_wanted(name)]
        if has_pickled_weights_only([*wanted, *sizes_bytes]):
            raise ModelUnavailableError(f"hf://{repo_id} is refused: {PICKLE_ADVICE}.")
        total_bytes = sum(sizes_bytes[name] for name in wanted)
        here_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        require_free_space(folder, total_bytes - here_bytes, f"Downloading hf://{repo_id}")
        with growth_task(folder, progress, f"Downloading {repo_id}", total_bytes):
            snapshot_download(
                repo_id,
                revision=info.sha,
                local_dir=folder,
                cache_dir=folder / _PARTS_FOLDER,
                allow_patterns=wanted,
                endpoint=api.endpoint,
                token=api.token,
                tqdm_class=_NoBar,
            )
    shutil.rmtree(folder / _PARTS_FOLDER)
    return f"hf://{repo_id}, commit {info.sha}"


def _is_wanted(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _WANTED) and not any(
        fnmatchcase(name, pattern) for pattern in _UNWANTED
    )


@contextmanager
def _hub_errors(repo_id: str, revision: str | None) -> Iterator[None]:
    try:
        yield
    except (HTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, HFValidationError) as error:
        raise ModelUnavailableError(
            f"hf://{repo_id} cannot be downloaded: {_reason(error, revision)}"
        ) from error


def _reason(error: Exception, revision: str | None) -> str:
    token = (
        "the token in HF_TOKEN" if os.environ.get("HF_TOKEN") else "no token (HF_TOKEN is not set)"
    )
    match error:
        case GatedRepoError():
            reason = (
                f"it is gated, and was asked for with {token}. Accept the model's terms on its "
                "page on the hub, and set HF_TOKEN to a token of that account."
            )
        case RevisionNotFoundError():
            reason = (
                f"it has no revision {revision!r}. Name a branch, a tag or a full commit hash "
                "that is on the hub."
            )
        case RepositoryNotFoundError():
            reason = (
                f"there is no such model, or it is private; asked with {token}. Check the "
                "spelling (hf://organisation/name), or set HF_TOKEN to a token that may read it."
            )
        case HfHubHTTPError():
            reason = (
                f"the hub answered with status {error.response.status_code}, asked with {token}. "
                "Try again later; with status 401 or 403, check HF_TOKEN."
            )
        case HFValidationError():
            reason = "this is not a model's name. Expected hf://organisation/name."
        case OfflineModeIsEnabled():
            reason = "HF_HUB_OFFLINE is set. Unset it, or use file:///a/local/folder."
        case _:
            reason = (
                f"the hub cannot be reached ({type(error).__name__}). Check the network and the "
                "proxy, set HF_ENDPOINT for a mirror, or use file:///a/local/folder."
            )
    return reason
