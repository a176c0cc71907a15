"""Memory and cores under a container's limits, from made-up kernel files."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipelineserve_engine.machine import free_memory_bytes, usable_cores

GIB = 1 << 30
ALL_CORES = len(os.sched_getaffinity(0))


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A machine with 8 GiB available and hardly any of it untouched."""
    folder = tmp_path / "proc"
    meminfo = f"MemFree: 1024 kB\nMemAvailable: {8 * GIB // 1024} kB"
    write(folder, {"meminfo": meminfo, "self/cgroup": "0::/"})
    return folder


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    folder = tmp_path / "cgroup"
    folder.mkdir()
    return folder


def test_memory_of_the_kernels_caches_counts_as_free(proc: Path, cgroups: Path) -> None:
    assert free_memory_bytes(proc, cgroups) == 8 * GIB


def test_a_limit_counts_less_what_is_used_except_for_caches(proc: Path, cgroups: Path) -> None:
    write(
        cgroups,
        {
            "memory.max": str(4 * GIB),
            "memory.current": str(3 * GIB),
            "memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}",
        },
    )
    assert free_memory_bytes(proc, cgroups) == 3 * GIB


def test_no_limit_and_a_limit_above_the_machine_leave_the_machines(
    proc: Path, cgroups: Path
) -> None:
    write(cgroups, {"memory.max": "max", "memory.current": str(GIB)})
    assert free_memory_bytes(proc, cgroups) == 8 * GIB
    write(cgroups, {"memory.max": str(64 * GIB)})
    assert free_memory_bytes(proc, cgroups) == 8 * GIB


def test_the_tightest_limit_above_the_process_counts(proc: Path, cgroups: Path) -> None:
    write(proc, {"self/cgroup": "1:name=systemd:/x\n0::/pod/container"})
    limits = {"pod": 2, "pod/container": 5}
    for folder, gib in limits.items():
        write(cgroups / folder, {"memory.max": str(gib * GIB), "memory.current": "0"})
        write(cgroups / folder, {"cpu.max": f"{gib * 100000} 100000"})
    assert free_memory_bytes(proc, cgroups) == 2 * GIB
    assert usable_cores(proc, cgroups) == min(2, ALL_CORES)


def test_a_group_over_its_limit_has_nothing_left(proc: Path, cgroups: Path) -> None:
    write(cgroups, {"memory.max": str(GIB), "memory.current": str(2 * GIB)})
    assert free_memory_bytes(proc, cgroups) == 0


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [
        ("max 100000", ALL_CORES),
        ("100000 100000", 1),
        ("20000 100000", 1),
        ("110000 100000", min(2, ALL_CORES)),
        ("100000000 100000", ALL_CORES),
    ],
)
def test_a_share_of_time_counts_as_cores(
    proc: Path, cgroups: Path, cpu_max: str, expected: int
) -> None:
    write(cgroups, {"cpu.max": cpu_max})
    assert usable_cores(proc, cgroups) == expected


def test_without_the_kernels_files_the_whole_machine_counts(tmp_path: Path) -> None:
    assert free_memory_bytes(tmp_path, tmp_path) > GIB // 4
    assert usable_cores(tmp_path, tmp_path) == ALL_CORES
