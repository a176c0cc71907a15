"""SGLang for CPUs, in a virtual environment of its own in the cache folder.

The one place that says which packages, how they are installed, and what its processes need around
them; for its benchmark (bench/sglang.py) and for the tests of the add-on. SGLang pins another torch
than ours, and a CUDA build of it with gigabytes that a CPU has no use for. So its packages are
installed selectively, once per list below.
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.environments import TORCH, environment, pip_install

SGLANG = "sglang==0.5.23"
# Imported by SGLang whatever the device; what only GPUs, images and sound need stays away.
NEEDED = (
    *("aiohttp", "apache-tvm-ffi==0.1.11", "compressed-tensors==0.18.0", "dill", "distro"),
    *("einops", "fastapi", "gguf", "huggingface_hub", "ipython", "jinja2", "loguru", "lxml"),
    *("mistral_common>=1.11.5", "msgspec", "numpy", "nvidia-ml-py", "openai==2.8.0", "orjson"),
    *("partial_json_parser", "pillow", "prometheus-client", "psutil", "py-spy", "pybase64"),
    *("pydantic", "python-multipart", "pyzmq", "regex", "requests", "scipy"),
    *("sentencepiece==0.2.1", "setproctitle", "setuptools", "soundfile==0.13.1", "tiktoken"),
    *("tokenizers==0.23.2", "tqdm", "transformers==5.19.0", "uvicorn", "uvloop", "watchfiles"),
    *("xxhash", "zstandard"),
)
# The add-on's own, and what builds it.
OURS = ("grpcio>=1.85", "grpcio-health-checking>=1.85", "protobuf>=7.35", "pyyaml", "hatchling")
# Each would bring the CUDA build of torch. SGLang imports all three at its start, even on a CPU;
# later builds of torchvision do not load beside the CPU build of torch.
ALONE = (SGLANG, "triton==3.9.0", "xgrammar==0.2.7", "torchvision==0.16.2")
# With these SGLang runs on the reference platform, where nothing is captured or fused.
CPU_FLAGS = (
    *("--device=cpu", "--attention-backend=torch_native"),
    *("--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled"),
    "--skip-server-warmup",
)
CPU_ENVIRON = {
    "SGLANG_PLATFORM": "reference",
    # A core for each rank; those above the second share them.
    "SGLANG_CPU_OMP_THREADS_BIND": "0|1|0|1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_PYTHONS = (f"{sys.version_info.major}.{sys.version_info.minor}",)


def sglang_programs(cache: Path) -> Path:
    """The folder of the environment's commands, made if it is not there.

    Args:
        cache: of the product; the first time some gigabytes are downloaded into it.

    Raises:
        ToolError: the first package that cannot be installed; the message holds pip's own.
    """
    requirements = (TORCH, *NEEDED, *OURS, *ALONE)
    name = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:16]
    return environment(cache / "sglang" / name, requirements, _PYTHONS, _install)


def _install(programs: Path, requirements: Sequence[str]) -> None:
    del requirements  # they are the lists above, in this order
    pip_install(programs, TORCH)
    pip_install(programs, *NEEDED, *OURS)
    pip_install(programs, "--no-deps", *ALONE)
