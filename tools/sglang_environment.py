"""Makes the environment in which the add-on runs inside a real SGLang, on a CPU; for tests.

    python -m tools.sglang_environment [--venv .venv-sglang]

SGLang's packages are in the cache folder, once for all checkouts (2.8 GB,
bench/sglang_packages.py). Each checkout gets a small environment of its own on top, with this
project and the tests' reference platform, whose entry points SGLang then finds.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from bench.environments import ToolError, say
from bench.sglang_packages import SGLANG, sglang_programs
from tools.overlays import overlay
from tools.sources import ROOT

from pipelineserve_engine.models import default_cache_dir

PROJECTS = (ROOT, ROOT / "tests" / "sglang_platform")
DEFAULT_VENV = ROOT / ".venv-sglang"


def main() -> None:
    """Make both environments and say where the checkout's is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--venv", type=Path, default=DEFAULT_VENV)
    venv = parser.parse_args().venv.absolute()
    try:
        packages = sglang_programs(default_cache_dir(os.environ)).parent
        overlay(venv, packages, PROJECTS)
    except ToolError as error:
        sys.exit(f"no environment for SGLang: {error}")
    python = str(venv / "bin" / "python")
    found = subprocess.run([python, "-c", "import sglang"], capture_output=True, check=False)
    if found.returncode != 0:
        sys.exit(f"SGLang cannot be imported in {venv}: {found.stderr.decode()[-2000:]}")
    say(f"{SGLANG} is ready in {venv}")


if __name__ == "__main__":
    main()
