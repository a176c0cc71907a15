"""Volumes of a pod as folders of this machine, and texts in which containers' paths are these."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelineserve_cli.pods.keeping import KeptTexts
from pipelineserve_cli.pods.specs import (
    ClaimedFolder,
    ContainerSpec,
    EmptyFolder,
    HostFolder,
    KeptFiles,
    PodSpec,
    VolumeSource,
)

SCRATCH = "/tmp"  # noqa: S108 # the containers' path
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 # where Linux has it
_PRIVATE = 0o700
_OWNERS_FILE = 0o600


@dataclass(frozen=True, slots=True)
class HostFolders:
    """Where a run keeps what its pods mount.

    Attributes:
        run: of this run alone.
        memory: of this run alone, in memory where this machine can.
        claims: of all runs; a folder for each claim.
        shared: what containers find at these paths although their pods' volumes are empty ones:
            folders that this machine has anyway.
    """

    run: Path
    memory: Path
    claims: Path
    shared: Mapping[str, Path]


class PodVolumes:
    """The folders of one pod.

    Args:
        pod: whose they are.
        index: of the pod; part of paths, which must be short since sockets lie in them.
        folders: where they are made.
        texts: what files are made of.
    """

    def __init__(self, pod: PodSpec, index: int, folders: HostFolders, texts: KeptTexts) -> None:
        self._pod = pod
        self._index = str(index)
        self._folders = folders
        self._texts = texts

    def make(self) -> None:
        """Make all folders and files."""
        for name, source in self._pod.volumes.items():
            self._folder(name, source).mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        self.refresh()

    def refresh(self) -> None:
        """Write the files whose texts have changed; readers see the old text or the new one."""
        for name, source in self._pod.volumes.items():
            if isinstance(source, KeptFiles):
                self._write(self._folder(name, source), source)

    def mounted(self, container: ContainerSpec) -> "Mounts":
        """What this container finds where."""
        found = {}
        for path, name in container.mounts.items():
            own = self._folder(name, self._pod.volumes[name])
            found[path] = self._folders.shared.get(path, own)
        return Mounts(found)

    def _folder(self, name: str, source: VolumeSource) -> Path:
        match source:
            case EmptyFolder(is_in_memory=True):
                return self._folders.memory / self._index / name
            case EmptyFolder() | KeptFiles():
                return self._folders.run / self._index / name
            case ClaimedFolder(claim_name):
                return self._folders.claims / claim_name
            case HostFolder(path):
                return Path(path)

    def _write(self, folder: Path, source: KeptFiles) -> None:
        data = self._texts.data(source.kind, source.name)
        for key, path in source.paths.items():
            if key in data:
                _replace(folder / path, data[key])


@dataclass(frozen=True)
class Mounts:
    """A container's paths and the folders that stand for them."""

    folders: Mapping[str, Path]

    @property
    def scratch(self) -> Path | None:
        """What the container has as `/tmp`, if it has one of its own."""
        return self.folders.get(SCRATCH)

    def translated(self, text: str) -> str:
        """`text` with every mounted path as the folder that stands for it.

        Not `/tmp`: users' own files may be there, and programs are told by a variable.
        """
        paths = [path for path in self.folders if path != SCRATCH]
        if not paths:
            return text
        # The longest first, in case that one is mounted within another.
        known = "|".join(map(re.escape, sorted(paths, key=len, reverse=True)))
        pattern = rf"(?:(?<=file://)|(?<![\w./-]))({known})(?![\w.-])"
        return re.sub(pattern, lambda match: str(self.folders[match[1]]), text)


def _replace(path: Path, text: str) -> None:
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    fresh = path.with_name(f".{path.name}.new")
    fresh.touch(_OWNERS_FILE)
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
