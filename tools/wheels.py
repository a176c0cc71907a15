"""Gathers the wheels of an image on the host: the pinned dependencies, and the product itself."""

import hashlib
import importlib.metadata
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename
from tools.bootstrap import is_cuda_build, offered_report
from tools.distributions import closure, needed_by
from tools.sources import ROOT, read_pyproject

# What only the CUDA build of torch asks for; images hold its CPU build.
_CUDA_PREFIXES = ("nvidia-", "cuda-", "triton")


class WheelError(Exception):
    """A wheel cannot be had; the message says what to do."""


def requirements_of(extra: str) -> list[str]:
    """`name==version` of all that an image with this extra holds beside the product.

    They are the development environment's pins, so that what was tested is what runs.

    Raises:
        WheelError: something that is needed has no pin.
    """
    pinned = pins((ROOT / "constraints.txt").read_text())
    needed = closure(needed_by(read_pyproject(), extra))
    wanted = sorted(name for name in needed if not name.startswith(_CUDA_PREFIXES))
    if missing := [name for name in wanted if name not in pinned]:
        raise WheelError(f"constraints.txt has no pin for {', '.join(missing)}; add them")
    return [f"{name}=={pinned[name]}" for name in wanted]


def pins(constraints: str) -> dict[str, str]:
    """Versions by canonical name."""
    lines = (line.partition("#")[0].strip() for line in constraints.splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonicalize_name(name): version for name, version in pairs}


def gather(requirements: Sequence[str], folder: Path) -> list[Path]:
    """The wheels of these requirements out of `folder`, those that it lacks fetched first.

    Raises:
        WheelError: a wheel cannot be had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [line for line in requirements if _in(folder, line) is None]
    torch = [line for line in missing if line.startswith("torch==")]
    others = [line for line in missing if line not in torch]
    if others:
        _download(others, folder)
    for line in torch:
        _download([_cpu_torch(line)], folder)
    found = {line: _in(folder, line) for line in requirements}
    if absent := [line for line, wheel in found.items() if wheel is None]:
        raise WheelError(f"pip left no wheel of {', '.join(absent)} in {folder}; remove the folder")
    return [wheel for wheel in found.values() if wheel is not None]


def product_wheel(folder: Path) -> Path:
    """The product's own wheel, made anew.

    Raises:
        WheelError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    own = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    _pip(own, "make the product's wheel")
    (wheel,) = folder.glob("*.whl")
    return wheel


def digest_of(wheel: Path) -> str:
    """A short name for a wheel's content."""
    return hashlib.sha256(wheel.read_bytes()).hexdigest()[:16]


def wheel_address(lock: str, requirement: str) -> str:
    """The address of the wheel for this machine in a `pylock.toml`, which says where each lies.

    Raises:
        WheelError: the lock has none.
    """
    name, _, version = requirement.partition("==")
    for package in tomllib.loads(lock).get("packages", ()):
        if package["name"] == name and package["version"].partition("+")[0] == version:
            for wheel in package.get("wheels", ()):
                if address := wheel.get("url"):
                    return str(address)
    raise WheelError(f"uv found no wheel of the CPU build of {requirement}; see uv's settings")


def _cpu_torch(requirement: str) -> str:
    """What to ask pip for so that it is the CPU build: see docs/decisions/0002."""
    if not is_cuda_build(offered_report(sys.executable, requirement)):
        return requirement
    lock = subprocess.run(
        [*_uv(), "pip", "compile", "--no-deps", "--format=pylock.toml", "--torch-backend=cpu", "-"],
        input=requirement,
        capture_output=True,
        text=True,
        check=False,
    )
    if lock.returncode != 0:
        raise WheelError(f"uv could not look for the CPU build of torch:\n{lock.stderr.strip()}")
    return wheel_address(lock.stdout, requirement)


def _uv() -> list[str]:
    try:
        importlib.metadata.version("uv")
    except importlib.metadata.PackageNotFoundError:
        _pip(["install", "uv"], "install uv, which finds the CPU build of torch")
    return [sys.executable, "-m", "uv"]


def _in(folder: Path, requirement: str) -> Path | None:
    """The wheel of `name==version` that lies in the folder; torch's build suffix is no matter."""
    name, _, version = requirement.partition("==")
    for wheel in folder.glob("*.whl"):
        own_name, own_version, _, _ = parse_wheel_filename(wheel.name)
        if own_name == name and str(own_version).partition("+")[0] == version:
            return wheel
    return None


def _download(requirements: Sequence[str], folder: Path) -> None:
    options = ["--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    _pip(["download", *options, *requirements], "fetch the wheels")


def _pip(arguments: Sequence[str], purpose: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(f"    {line}" for line in done.stderr.strip().splitlines()[-15:])
        raise WheelError(
            f"could not {purpose}:\n{tail}\n"
            "Check the network, the proxy and pip's settings (pip config list), then try again: "
            "what is there already is kept."
        )
