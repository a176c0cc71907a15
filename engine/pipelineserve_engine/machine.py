"""What this process may use of the machine: its own limits, where a container sets some.

Limits are read from cgroup v2; under v1 the whole machine counts.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def free_memory_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Memory that this process can still take; caches that the kernel gives back count as free.

    Args:
        proc: where the kernel shows processes.
        cgroups: where it shows cgroup v2.
    """
    folders = _cgroup_folders(proc, cgroups)
    left = [bytes_left for folder in folders if (bytes_left := _bytes_left(folder)) is not None]
    return max(0, min([_available_bytes(proc), *left]))


def usable_cores(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Cores that this process may run on, at least 1; a share of time counts as so many cores."""
    try:
        num_cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        num_cores = os.cpu_count() or 1
    shares = [
        share for folder in _cgroup_folders(proc, cgroups) if (share := _cores(folder)) is not None
    ]
    return min([num_cores, *shares])


def _cgroup_folders(proc: Path, cgroups: Path) -> Iterator[Path]:
    """This process's cgroup and those above it, each of which may set limits."""
    lines = (_text(proc / "self" / "cgroup") or "").splitlines()
    own = next((line[len("0::/") :] for line in lines if line.startswith("0::/")), "")
    folder = cgroups / own
    yield folder
    while folder != cgroups and cgroups in folder.parents:
        folder = folder.parent
        yield folder


def _available_bytes(proc: Path) -> int:
    for line in (_text(proc / "meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _bytes_left(folder: Path) -> int | None:
    """What the cgroup's limit leaves; None without a limit."""
    limit, used = _text(folder / "memory.max"), _text(folder / "memory.current")
    if limit is None or used is None or limit == "max":
        return None
    stat = dict(line.split() for line in (_text(folder / "memory.stat") or "").splitlines())
    return int(limit) - int(used) + int(stat.get("inactive_file", 0))


def _cores(folder: Path) -> int | None:
    quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
    return None if quota == "max" else max(1, math.ceil(int(quota) / int(period)))


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:  # this kernel does not show it
        return None
