"""The cache of model folders: complete entries only, one builder at a time, nothing half written.

<cache>/models/<key>/    complete entries, moved here in one rename
<cache>/staging/<key>/   what is being built, or what a killed process left
<cache>/locks/<key>.lock held while an entry is built; the kernel frees it when a process dies
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.models.files import ModelFiles, check_model_folder
from pipelineserve_engine.models.progress import Progress, task

# Raise it when a newer converter writes other files from the same input.
CONVERTER_FORMAT = 1

_SOURCE_FILE = "pipelineserve-source.json"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make one entry.

    Attributes:
        label: what a person reads in the folder's name.
        identity: everything that decides the content; equal identities share an entry.
        build: fills the given empty folder and returns the exact source of what it put there.
        is_resumable: the folder may hold the parts of an interrupted try, which `build` continues.
    """

    label: str
    identity: Mapping[str, str | int]
    build: Callable[[Path], str]
    is_resumable: bool = False

    @property
    def key(self) -> str:
        """A file name: readable, and unique to the identity."""
        canonical = json.dumps(dict(self.identity), sort_keys=True).encode()
        readable = re.sub(r"[^A-Za-z0-9._+@-]+", "-", self.label).strip("-.")[:80]
        return f"{readable}-{hashlib.sha256(canonical).hexdigest()[:12]}"


class ModelCache:
    """Complete model folders below one root; safe for several processes on one machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, recipe: Recipe, progress: Progress) -> ModelFiles:
        """The entry, made first if it is not there yet; a complete entry needs no lock or network.

        Raises:
            ModelUnavailableError: `recipe.build` failed, or the cache cannot be written.
        """
        with storage_errors(self._root):
            if (files := self._published(recipe.key)) is not None:
                return files
            with self._locked(recipe, progress):
                return self._published(recipe.key) or self._build(recipe)

    def _published(self, key: str) -> ModelFiles | None:
        folder = self._root / "models" / key
        try:
            source = json.loads((folder / _SOURCE_FILE).read_text(encoding="utf-8"))["source"]
            return check_model_folder(folder, str(source))
        except (FileNotFoundError, ValueError, KeyError, TypeError, ModelUnavailableError):
            return None  # absent, or damaged after it was written: it is made again

    def _build(self, recipe: Recipe) -> ModelFiles:
        staging = self._root / "staging" / recipe.key
        if not recipe.is_resumable:
            _remove_tree(staging)
        staging.mkdir(parents=True, exist_ok=True)
        try:
            source = recipe.build(staging)
            check_model_folder(staging, source)
        except BaseException:  # Ctrl-C too: half a model is large, and of no use to anybody
            if not recipe.is_resumable:
                shutil.rmtree(staging, ignore_errors=True)
            raise
        (staging / _SOURCE_FILE).write_text(json.dumps({"source": source}), encoding="utf-8")
        return ModelFiles(self._publish(staging, recipe.key), source)

    def _publish(self, staging: Path, key: str) -> Path:
        for path in sorted(staging.rglob("*")):
            if path.is_file():
                _flush_to_disk(path)
        folder = self._root / "models" / key
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_tree(folder)
        staging.rename(folder)
        _flush_to_disk(folder.parent)
        return folder

    @contextmanager
    def _locked(self, recipe: Recipe, progress: Progress) -> Iterator[None]:
        path = self._root / "locks" / f"{recipe.key}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        # The lock file stays: removing it would let two processes lock two different files.
        with path.open("a", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with task(progress, f"Waiting for another process to get {recipe.label}", None):
                    fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn the operating system's errors about files into ModelUnavailableError."""
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        raise ModelUnavailableError(
            f"The model's files cannot be read or stored: {where}: {error.strerror or error}. "
            f"{_advice(error.errno)} The cache is {folder}; "
            "PIPELINESERVE_CACHE names another place."
        ) from error


def require_free_space(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Fail before the work rather than in the middle of it.

    Raises:
        ModelUnavailableError: the file system of `folder` has less than `needed_bytes` free.
    """
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise ModelUnavailableError(
            f"{purpose} needs {needed_bytes / 1e9:.2f} GB in {folder}, but only "
            f"{free_bytes / 1e9:.2f} GB are free there. Free some space, or name a cache on a "
            "larger disk with PIPELINESERVE_CACHE."
        )


def _advice(number: int | None) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "The disk or the quota is full: free some space and try again."
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "This user may not write there: change the permissions or choose another folder."
    return "Check that the folder exists on a local, writable file system."


def _remove_tree(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
