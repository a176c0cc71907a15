"""What tells one state of a file from the next, for files that are read again when they change."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A mounted secret changes its inode, an edited file its time or size."""

    mtime_ns: int
    inode: int
    size: int


def version_of(path: Path) -> FileVersion:
    """The file's version now.

    Raises:
        OSError: it cannot be looked at.
    """
    status = path.stat()
    return FileVersion(status.st_mtime_ns, status.st_ino, status.st_size)
