"""Virtual environments of programs that are measured beside the product and never enter it."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

# What needs torch would take the newest, often with gigabytes of CUDA; the CPU build may be cached.
TORCH = "torch==2.13.0"

Install = Callable[[Path, Sequence[str]], None]


class ToolError(Exception):
    """A program cannot be installed or run here."""


def install_each(programs: Path, requirements: Sequence[str]) -> None:
    """Install one requirement after the other with the environment's pip."""
    for requirement in requirements:
        pip_install(programs, requirement)


def environment(
    venv: Path,
    requirements: Sequence[str],
    pythons: Sequence[str],
    install: Install = install_each,
) -> Path:
    """The folder of the environment's commands; made if it is not there as it is wanted.

    Args:
        venv: its folder.
        requirements: what it is known by; others than last time make it anew.
        pythons: versions that will do, like "3.11"; the first that is here is taken.
        install: puts the requirements into it.

    Raises:
        ToolError: no such Python is here, or pip failed; the message holds pip's own.
    """
    stamp = venv / "requirements.txt"
    wanted = "\n".join(requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return venv / "bin"
    say(f"installing {venv.name}; this may take minutes")
    shutil.rmtree(venv, ignore_errors=True)
    run_quietly([_python(pythons), "-m", "venv", str(venv)])
    install(venv / "bin", requirements)
    stamp.write_text(wanted)
    return venv / "bin"


def pip_install(programs: Path, *arguments: str) -> None:
    """Run the environment's pip.

    Raises:
        ToolError: it failed.
    """
    run_quietly([str(programs / "pip"), "install", "--quiet", *arguments])


def run_quietly(command: Sequence[str]) -> str:
    """Run to the end; what it printed.

    Raises:
        ToolError: it failed; the message has the end of its standard error.
    """
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise ToolError(f"{' '.join(command)} failed:\n{finished.stderr[-2000:]}")
    return finished.stdout


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


def _python(versions: Sequence[str]) -> str:
    for version in versions:
        candidates = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        found = shutil.which(f"python{version}") or next(map(str, candidates), None)
        # pyenv's shims exist also for versions that are not chosen, and then fail.
        for python in [*map(str, candidates), *([found] if found else [])]:
            if _works(python):
                return python
    raise ToolError(f"needs Python {' or '.join(versions)}, none is here; install one of them")


def _works(python: str) -> bool:
    command = [python, "-c", "import venv, ensurepip"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
