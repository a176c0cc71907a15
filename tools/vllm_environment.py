"""Makes the environment in which the add-on runs inside a real vLLM, on a CPU; for tests.

    python -m tools.vllm_environment [--venv .venv-vllm]

vLLM's packages are in the cache folder, once for all checkouts (3.4 GB, bench/vllm_packages.py).
Each checkout gets a small environment of its own on top, with this project, whose entry point vLLM
then finds.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from bench.environments import ToolError, say
from bench.vllm_packages import VLLM, vllm_programs
from tools.overlays import overlay
from tools.sources import ROOT

from pipelineserve_engine.models import default_cache_dir

# The add-on's own that vLLM has not, and what builds it.
OURS = ("grpcio-health-checking>=1.85", "hatchling")
DEFAULT_VENV = ROOT / ".venv-vllm"


def main() -> None:
    """Make both environments and say where the checkout's is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--venv", type=Path, default=DEFAULT_VENV)
    venv = parser.parse_args().venv.absolute()
    try:
        packages = vllm_programs(default_cache_dir(os.environ)).parent
        overlay(venv, packages, (ROOT,), OURS)
    except ToolError as error:
        sys.exit(f"no environment for vLLM: {error}")
    python = str(venv / "bin" / "python")
    check = [python, "-m", "pipelineserve_engine.vllm.targets"]
    found = subprocess.run(check, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        sys.exit(f"vLLM in {venv} is not as expected: {found.stdout}{found.stderr[-2000:]}")
    say(f"{VLLM} is ready in {venv}")


if __name__ == "__main__":
    main()
