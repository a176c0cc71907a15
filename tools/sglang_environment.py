"""Makes the environment in which the add-on runs inside a real SGLang, on a CPU; for tests.

    python -m tools.sglang_environment [--venv .venv-sglang]

SGLang pins another torch than ours, and a CUDA build of it with gigabytes that a CPU has no use
for. So its packages are installed selectively into an environment in the cache folder, once per
list below (2.8 GB). Each checkout gets a small environment of its own on top, with this project
and the tests' reference platform, whose entry points SGLang then finds.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.environments import TORCH, ToolError, environment, pip_install, say
from tools.overlays import overlay, this_python
from tools.sources import ROOT

from pipelineserve_engine.models import default_cache_dir

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
PROJECTS = (ROOT, ROOT / "tests" / "sglang_platform")
DEFAULT_VENV = ROOT / ".venv-sglang"


def cached_packages(cache: Path) -> Path:
    """The environment with SGLang and what it needs, made if it is not there.

    Raises:
        ToolError: the first package that cannot be installed; the message holds pip's own.
    """
    requirements = (TORCH, *NEEDED, *OURS, *ALONE)
    name = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:16]
    programs = environment(cache / "sglang" / name, requirements, (this_python(),), _install)
    return programs.parent


def _install(programs: Path, requirements: Sequence[str]) -> None:
    del requirements  # they are the lists below, in this order
    pip_install(programs, TORCH)
    pip_install(programs, *NEEDED, *OURS)
    pip_install(programs, "--no-deps", *ALONE)


def main() -> None:
    """Make both environments and say where the checkout's is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--venv", type=Path, default=DEFAULT_VENV)
    venv = parser.parse_args().venv.absolute()
    try:
        overlay(venv, cached_packages(default_cache_dir(os.environ)), PROJECTS)
    except ToolError as error:
        sys.exit(f"no environment for SGLang: {error}")
    python = str(venv / "bin" / "python")
    found = subprocess.run([python, "-c", "import sglang"], capture_output=True, check=False)
    if found.returncode != 0:
        sys.exit(f"SGLang cannot be imported in {venv}: {found.stderr.decode()[-2000:]}")
    say(f"{SGLANG} is ready in {venv}")


if __name__ == "__main__":
    main()
