"""The Python that stands for SGLang's image on this machine.

SGLang pins packages that ours does not go with, so it is often in an environment of its own.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_cli.pods.launches import environment_for

FLAG = "--sglang-python"
VARIABLE = "PIPELINESERVE_SGLANG_PYTHON"
_SGLANG = "sglang"
_NEEDED = (_SGLANG, "pipelineserve_engine.sglang.plugin")
# Importing SGLang takes many seconds; whether it is there is known at once.
_CHECK = """
import sys
from importlib.util import find_spec

for name in sys.argv[1:]:
    try:
        is_there = find_spec(name) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        print(name)
"""
_CHECK_TIMEOUT_S = 60.0


def chosen_python(given: Path | None) -> Path | None:
    """The one that was given, else the one that runs this if it has SGLang; None: there is none."""
    if given is not None:
        # Not resolved: an environment is known by the link that it is started through.
        return given.absolute()
    return Path(sys.executable) if find_spec(_SGLANG) is not None else None


def require_sglang(python: Path) -> None:
    """See that SGLang and the add-on are there, which take a minute to fail by themselves.

    Raises:
        EngineUnavailableError: names what is missing.
    """
    try:
        checked = subprocess.run(
            [str(python), "-c", _CHECK, *_NEEDED],
            env=environment_for(python, os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_CHECK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineUnavailableError(f"{python} cannot be run: {error}") from error
    if checked.returncode != 0:
        raise EngineUnavailableError(
            f"expected a Python with SGLang, but {python} ended with {checked.returncode}: "
            f"{checked.stderr.strip() or 'it said nothing'}"
        )
    if missing := checked.stdout.split():
        raise EngineUnavailableError(
            f"{python} has no {' and no '.join(missing)}; install SGLang there, then "
            "pip install 'pipelineserve[sglang]' beside it"
        )
