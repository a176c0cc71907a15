"""Small virtual environments on top of large ones: a checkout's files beside cached packages."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from bench.environments import run_quietly


def overlay(
    venv: Path, packages: Path, projects: Sequence[Path], requirements: Sequence[str] = ()
) -> None:
    """An environment that sees the packages of another one, and these projects' own files.

    Args:
        venv: its folder; nothing happens if it is there as it is wanted.
        packages: the other environment, which has the projects' requirements.
        projects: installed so that edits are seen.
        requirements: that the other one lacks, and what builds the projects.

    Raises:
        ToolError: something cannot be installed; the message holds pip's own.
    """
    stamp = venv / "made-of.txt"
    contents = (_content_of(project) for project in projects)
    wanted = "\n".join([str(packages), *requirements, *contents])
    if stamp.exists() and stamp.read_text() == wanted:
        return
    run_quietly(
        [str(packages / "bin" / "python"), "-m", "venv", "--clear", "--without-pip", str(venv)]
    )
    (_site_of(venv) / "packages.pth").write_text(f"{_site_of(packages)}\n")
    pip = [str(packages / "bin" / "python"), "-m", "pip", "--python", str(venv / "bin" / "python")]
    if requirements:
        run_quietly([*pip, "install", "--quiet", *requirements])
    install = [*pip, "install", "--quiet", "--no-deps", "--no-build-isolation"]
    for project in projects:
        run_quietly([*install, "--editable", str(project)])
    stamp.write_text(wanted)


def _site_of(venv: Path) -> Path:
    """Of whichever Python it was made with, which need not be this one."""
    (site,) = (venv / "lib").glob("python3.*/site-packages")
    return site


def _content_of(project: Path) -> str:
    return f"{project} {hashlib.sha256((project / 'pyproject.toml').read_bytes()).hexdigest()}"
