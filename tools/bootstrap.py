"""Makes this checkout's Python environment; says so at once when it is up to date.

Runs on the system's Python with the standard library only, because it comes before every other
package. The steps: make the environment, install the pinned dependencies (torch in its CPU build
where no NVIDIA GPU is), install the project in editable mode, write the stamp. The stamp comes
last, so that an interrupted run is taken up again by the next one.

With a cache folder, the dependencies are installed there once per set of pins, and each checkout's
environment is made of hard links to it; docs/decisions/0002 says why.
"""

import platform
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - whoever runs this may well have an older Python
    sys.exit(
        f"PipelineServe needs Python 3.11 or newer, but {sys.executable} is version "
        f"{platform.python_version()}. Install a newer one and say which: "
        "make env PYTHON=python3.11"
    )

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("dev",)
STAMP_NAME = "pipelineserve-stamp.json"
NUM_CACHED_KEPT = 3  # three sets of pins cover a branch, its base and the one before
PIP_ADVICE = (
    "Check the network, the proxy and the free disk space (3 GB is enough), then run `make env` "
    "again: what is already installed is kept."
)


class BootstrapError(Exception):
    """The environment cannot be made; the message says what to do."""


@dataclass(frozen=True)
class Stamp:
    """What an environment was made from; equal stamps mean nothing is left to do."""

    place: str
    dependencies: str
    project: str


def required_distributions(pyproject: dict[str, Any], extras: Sequence[str]) -> list[str]:
    """The requirement lines of the build, the base and `extras`, own extras followed."""
    project = pyproject["project"]
    optional = project["optional-dependencies"]
    own_extras = re.compile(rf"{re.escape(project['name'])}\[([\w,\s-]+)\]")
    lines = [*pyproject["build-system"]["requires"], *project["dependencies"]]
    pending = list(extras)
    while pending:
        for line in optional[pending.pop(0)]:
            match = own_extras.fullmatch(line)  # no walrus: Pythons too old must parse this file
            if match:
                pending += [name.strip() for name in match[1].split(",")]
            else:
                lines.append(line)
    return list(dict.fromkeys(lines))


def digest(*parts: str) -> str:
    """A short name for these texts together; no two different lists share one by joining."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def wanted_stamp(venv: Path, requirements: Sequence[str]) -> Stamp:
    """The stamp that `venv` carries once it is up to date with the files of this checkout."""
    pins = (ROOT / "constraints.txt").read_text()
    script = Path(__file__).read_text()
    return Stamp(
        place=str(venv),
        dependencies=digest(*requirements, pins, script, sys.version, sys.base_prefix),
        project=digest((ROOT / "pyproject.toml").read_text(), str(ROOT)),
    )


def read_stamp(venv: Path) -> Stamp | None:
    """The environment's stamp, or None when it has none or one of another form."""
    try:
        return Stamp(**json.loads((venv / STAMP_NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return None  # all three mean the same: make it anew


def write_stamp(venv: Path, stamp: Stamp) -> None:
    """Declare the environment complete."""
    (venv / STAMP_NAME).write_text(json.dumps(asdict(stamp), indent=1) + "\n")


def say(text: str) -> None:
    """One line of progress."""
    print(f"env: {text}", flush=True)


def is_progress(line: str) -> bool:
    """Whether a line of pip or uv tells of something that takes long enough to be waited for."""
    if line.lstrip().startswith("Downloading"):
        return "MB)" in line or "MiB)" in line
    return line.lstrip().startswith("Installing collected packages")


def run_shown(command: Sequence[str], purpose: str, advice: str = PIP_ADVICE) -> None:
    """Run `command`, showing downloads as they start; on failure its last lines and `advice`."""
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            if is_progress(line):
                say(f"  {line.strip()[:90]}")
    if process.returncode != 0:
        tail = "\n".join(f"    {line}" for line in lines[-20:])
        message = f"could not {purpose}; the last lines were:\n{tail}\n{advice}"
        raise BootstrapError(message)


def pip_install(venv: Path, purpose: str, *arguments: str) -> None:
    """`pip install` inside `venv`, within the pins."""
    python = str(venv / "bin" / "python")
    pins = str(ROOT / "constraints.txt")
    run_shown([python, "-m", "pip", "install", "--constraint", pins, *arguments], purpose)


def wanted_torch_build() -> str:
    """The build for this machine: `cuda` where an NVIDIA GPU answers, else `cpu`."""
    chosen = os.environ.get("PIPELINESERVE_TORCH", "")
    if chosen in ("cpu", "cuda"):
        return chosen
    if chosen:
        message = (
            f'PIPELINESERVE_TORCH is "{chosen}", expected "cpu" or "cuda"; '
            "unset it to let the machine's GPU decide."
        )
        raise BootstrapError(message)
    tool = shutil.which("nvidia-smi")
    found = tool and subprocess.run([tool, "-L"], capture_output=True, check=False).returncode == 0
    return "cuda" if found else "cpu"


def is_cuda_build(report: dict[str, Any]) -> bool:
    """Whether pip's report on torch names a build that brings NVIDIA's libraries along."""
    metadata = report["install"][0]["metadata"]
    if metadata["version"].endswith("+cpu"):
        return False
    return any(line.startswith(("nvidia-", "cuda-")) for line in metadata.get("requires_dist", ()))


def offered_report(python: str, requirement: str) -> dict[str, Any]:
    """What pip would install for `requirement`, from where this machine's pip is set up to look."""
    command = [python, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps"]
    answer = subprocess.run(
        [*command, "--quiet", "--report", "-", requirement],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise BootstrapError(f"pip found no {requirement}:\n{answer.stderr.strip()}\n{PIP_ADVICE}")
    report: dict[str, Any] = json.loads(answer.stdout)
    return report


def install_cpu_torch(venv: Path) -> None:
    """Install torch's CPU build; a CUDA build would bring several GB that this machine cannot use.

    pip cannot be told "the CPU build" without naming an index. uv can, so it is asked where pip's
    own index offers only the CUDA build.
    """
    python = str(venv / "bin" / "python")
    pins = (ROOT / "constraints.txt").read_text()
    torch = next(line for line in pins.splitlines() if line.startswith("torch=="))
    if not is_cuda_build(offered_report(python, torch)):
        pip_install(venv, "install torch", torch)
        return
    pip_install(venv, "install uv", "uv")
    uv = [str(venv / "bin" / "uv"), "pip", "install", "--python", python]
    advice = f"{PIP_ADVICE} To accept the CUDA build (5 GB): make env PIPELINESERVE_TORCH=cuda"
    pins_file = str(ROOT / "constraints.txt")
    run_shown(
        [*uv, "--torch-backend", "cpu", "--constraint", pins_file, torch],
        "install the CPU build of torch",
        advice,
    )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` against other runs of this script; the lock goes with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run holds {folder}; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_usable(venv: Path) -> bool:
    """Whether `venv` stands where it was made and runs this very Python version."""
    stamp = read_stamp(venv)
    settings = venv / "pyvenv.cfg"
    if not settings.exists() or (stamp is not None and stamp.place != str(venv)):
        return False
    version = re.escape(platform.python_version())
    is_same_version = re.search(rf"^version = {version}$", settings.read_text(), re.MULTILINE)
    return bool(is_same_version) and (venv / "bin" / "python").exists()


def is_current(venv: Path, stamp: Stamp) -> bool:
    """Whether nothing is left to do; false also when the Python that it was made with is gone."""
    return read_stamp(venv) == stamp and (venv / "bin" / "python").exists()


def make_venv(venv: Path) -> None:
    """Make an empty environment at `venv`, unless a usable one is there."""
    if is_usable(venv):
        return
    say(f"making {venv} with Python {platform.python_version()}")
    run_shown(
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        "make an environment",
        "On Debian and Ubuntu the module is a package of its own: apt-get install python3-venv",
    )


def install_dependencies(venv: Path, requirements: Sequence[str], torch_build: str) -> None:
    """Bring every dependency into `venv` at its pinned version."""
    if torch_build == "cpu" and sys.platform == "linux":  # elsewhere pip's only build is for CPUs
        say("installing torch for the CPU")
        install_cpu_torch(venv)
    say("installing the dependencies")
    pip_install(venv, "install the dependencies", *requirements)


def cached_dependencies(cache: Path, requirements: Sequence[str], stamp: Stamp) -> Path:
    """The environment in `cache` that holds these dependencies, made now if it is not there."""
    torch_build = wanted_torch_build()
    cached = cache / f"{stamp.dependencies}-{torch_build}"
    complete = Stamp(str(cached), stamp.dependencies, "")
    if read_stamp(cached) == complete:
        say(f"dependencies are cached in {cached}")
    else:
        make_venv(cached)
        install_dependencies(cached, requirements, torch_build)
        write_stamp(cached, complete)
    os.utime(cached)
    newest_first = sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in newest_first[NUM_CACHED_KEPT:]:
        say(f"removing {old}, unused for longest")
        shutil.rmtree(old)
    return cached


def link_or_copy(source: str, target: str) -> None:
    """A hard link where both lie on one file system, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def clone_venv(source: Path, target: Path) -> None:
    """Make `target` an environment of its own with the files of `source`.

    Scripts name the environment's path in their first line; they are written anew, not changed in
    place, because a hard link shares its content with the source.
    """
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, symlinks=True, copy_function=link_or_copy)
    (target / STAMP_NAME).unlink(missing_ok=True)
    for path in [target / "pyvenv.cfg", *(target / "bin").iterdir()]:
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        if os.fsencode(source) in content and not content.startswith(b"\x7fELF"):
            mode = path.stat().st_mode
            path.unlink()
            path.write_bytes(content.replace(os.fsencode(source), os.fsencode(target)))
            path.chmod(mode)


def build(venv: Path, cache: Path | None, requirements: Sequence[str], stamp: Stamp) -> None:
    """Bring `venv` up to date, doing only what its old stamp leaves open."""
    old = read_stamp(venv) if is_usable(venv) else None
    if old is None or old.dependencies != stamp.dependencies:
        if cache is None:
            make_venv(venv)
            (venv / STAMP_NAME).unlink(missing_ok=True)
            install_dependencies(venv, requirements, wanted_torch_build())
        else:
            with locked(cache):
                clone_venv(cached_dependencies(cache, requirements, stamp), venv)
    say("installing the project")
    pip_install(
        venv, "install the project", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)
    )
    write_stamp(venv, stamp)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make or update the environment; 0 when it is ready."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--venv", default=os.environ.get("PIPELINESERVE_VENV") or ROOT / ".venv")
    parser.add_argument("--cache", default=os.environ.get("PIPELINESERVE_VENV_CACHE") or None)
    options = parser.parse_args(arguments)
    venv = Path(options.venv).absolute()
    cache = Path(options.cache).absolute() if options.cache else None
    requirements = required_distributions(
        tomllib.loads((ROOT / "pyproject.toml").read_text()), EXTRAS
    )
    stamp = wanted_stamp(venv, requirements)
    if is_current(venv, stamp):
        return 0
    started_s = time.monotonic()
    try:
        with locked(ROOT):
            if not is_current(venv, stamp):  # another run may have made it meanwhile
                build(venv, cache, requirements, stamp)
    except BootstrapError as error:
        print(f"env: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("env: interrupted; the next `make env` goes on from here", file=sys.stderr)
        return 130
    say(f"{venv} is ready after {time.monotonic() - started_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
