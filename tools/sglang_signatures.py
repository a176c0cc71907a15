"""Writes down the parameters of SGLang's functions that the add-on hooks, for tests without SGLang.

    python -m tools.sglang_signatures

Asked of the real packages, one after another, in the environment of `make sglang-env`: the version
that is installed there, and the wheel of each other one in front of it. To be run when the add-on
hooks another function or is to fit another version.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.environments import ToolError, run_quietly, say
from tools.sglang_environment import DEFAULT_VENV
from tools.sources import ROOT

from pipelineserve_engine.sglang.targets import TARGETS, VERSIONS

TABLE = ROOT / "tests" / "unit" / "engine" / "sglang" / "signatures.json"
# By version of SGLang, by path of a function: names of its parameters, in order.
Signatures = Mapping[str, Mapping[str, list[str]]]
_ASK = """
import inspect, json, pkgutil, sys
from importlib.metadata import version
found = {}
for path in sys.argv[1:]:
    found[path] = list(inspect.signature(pkgutil.resolve_name(path)).parameters)
print(json.dumps([version("sglang"), found]))
"""


def signatures_of(version: str, python: Path) -> Mapping[str, list[str]]:
    """Of one version's functions.

    Args:
        version: of SGLang.
        python: of an environment with all that SGLang needs, and some version of it.

    Raises:
        ToolError: the version cannot be had or imported, or lacks one of the functions.
    """
    with _folder_of(version, python) as folder:
        environ = {**os.environ, "SGLANG_PLATFORM": "reference", "PYTHONPATH": folder}
        command = [str(python), "-c", _ASK, *(target.path for target in TARGETS)]
        asked = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if asked.returncode != 0:
        raise ToolError(f"SGLang {version} could not be asked:\n{asked.stderr[-2000:]}")
    found_version, found = json.loads(asked.stdout.splitlines()[-1])
    if found_version != version:
        raise ToolError(f"expected SGLang {version}, asked {found_version}")
    signatures: Mapping[str, list[str]] = found
    return signatures


@contextmanager
def _folder_of(version: str, python: Path) -> Iterator[str]:
    """Where the version's files lie, if not in the environment itself."""
    program = "from importlib.metadata import version; print(version('sglang'))"
    if run_quietly([str(python), "-c", program]).strip() == version:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="sglang-") as folder:
        download = ["download", "--quiet", "--no-deps", "--dest", folder, f"sglang=={version}"]
        run_quietly([sys.executable, "-m", "pip", *download])
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        yield folder


def main() -> None:
    """Ask each version, write the table."""
    python = DEFAULT_VENV / "bin" / "python"
    if not python.exists():
        sys.exit(f"{python} is missing; run make sglang-env")
    try:
        table = {version: signatures_of(version, python) for version in VERSIONS}
    except ToolError as error:
        sys.exit(f"the table stays as it was: {error}")
    TABLE.write_text(json.dumps(table, indent=2) + "\n")
    say(f"{TABLE.relative_to(ROOT)} has {len(TARGETS)} functions of {', '.join(table)}")


if __name__ == "__main__":
    main()
