"""The cache: complete entries only, one builder at a time."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.models import ModelFiles, SilentProgress, default_cache_dir
from pipelineserve_engine.models.store import ModelCache, Recipe


def _fill(folder: Path) -> str:
    (folder / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return "somewhere, version 1"


def _recipe(
    build: Callable[[Path], str] = _fill, *, version: str = "1", is_resumable: bool = False
) -> Recipe:
    return Recipe(
        label="hf-org/name@main",
        identity={"version": version},
        build=build,
        is_resumable=is_resumable,
    )


def _never(_: Path) -> str:
    raise AssertionError("was built a second time")


def _get(root: Path, recipe: Recipe) -> ModelFiles:
    return ModelCache(root).get(recipe, SilentProgress())


def test_a_second_call_builds_nothing_and_gives_the_same_answer(tmp_path: Path) -> None:
    first = _get(tmp_path, _recipe())
    assert _get(tmp_path, _recipe(_never)) == first
    assert first.source == "somewhere, version 1"


def test_a_complete_entry_is_read_from_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _get(tmp_path, _recipe())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert _get(tmp_path, _recipe(_never)) == first


def test_another_identity_is_another_entry(tmp_path: Path) -> None:
    first = _get(tmp_path, _recipe(version="1"))
    second = _get(tmp_path, _recipe(version="2"))
    assert first.folder != second.folder


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ModelUnavailableError("no")])
def test_an_interrupted_build_leaves_no_entry_and_no_rest(
    tmp_path: Path, error: BaseException
) -> None:
    def interrupted(folder: Path) -> str:
        _fill(folder)
        raise error

    with pytest.raises(type(error)):
        _get(tmp_path, _recipe(interrupted))
    assert list((tmp_path / "staging").iterdir()) == []
    assert _get(tmp_path, _recipe()).folder.is_dir()


def test_what_a_killed_process_left_is_removed_before_the_next_try(tmp_path: Path) -> None:
    left = tmp_path / "staging" / _recipe().key
    left.mkdir(parents=True)
    (left / "half.bin").write_bytes(b"half")
    files = _get(tmp_path, _recipe())
    assert not (files.folder / "half.bin").exists()
    assert not left.exists()


def test_a_resumable_build_finds_what_the_interrupted_one_left(tmp_path: Path) -> None:
    def interrupted(folder: Path) -> str:
        (folder / "part").write_bytes(b"half")
        raise KeyboardInterrupt

    def resumed(folder: Path) -> str:
        assert (folder / "part").read_bytes() == b"half"
        return _fill(folder)

    with pytest.raises(KeyboardInterrupt):
        _get(tmp_path, _recipe(interrupted, is_resumable=True))
    assert _get(tmp_path, _recipe(resumed, is_resumable=True)).folder.is_dir()


def test_an_entry_that_lost_a_file_is_built_again(tmp_path: Path) -> None:
    files = _get(tmp_path, _recipe())
    (files.folder / "model.safetensors").unlink()
    again = _get(tmp_path, _recipe())
    assert (again.folder / "model.safetensors").is_file()


def test_a_build_that_forgot_a_file_is_not_kept(tmp_path: Path) -> None:
    def incomplete(folder: Path) -> str:
        source = _fill(folder)
        (folder / "tokenizer.json").unlink()
        return source

    with pytest.raises(ModelUnavailableError, match="tokenizer is missing"):
        _get(tmp_path, _recipe(incomplete))
    assert not (tmp_path / "models").exists()


class _Announcing(SilentProgress):
    """Sets an event when the wait for the other process is shown."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.has_started = threading.Event()

    def start(self, label: str, total_bytes: int | None) -> None:
        del total_bytes
        self.labels.append(label)
        self.has_started.set()


def test_the_second_of_two_waits_says_so_and_uses_what_the_first_made(tmp_path: Path) -> None:
    building, may_end = threading.Event(), threading.Event()

    def slow(folder: Path) -> str:
        building.set()
        assert may_end.wait(30)
        return _fill(folder)

    first = threading.Thread(target=_get, args=(tmp_path, _recipe(slow)))
    second_progress = _Announcing()
    found: list[ModelFiles] = []
    second = threading.Thread(
        target=lambda: found.append(ModelCache(tmp_path).get(_recipe(_never), second_progress))
    )
    first.start()
    assert building.wait(30)
    second.start()
    assert second_progress.has_started.wait(30)
    may_end.set()
    first.join(30)
    second.join(30)
    assert second_progress.labels == ["Waiting for another process to get hf-org/name@main"]
    assert [files.source for files in found] == ["somewhere, version 1"]


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EACCES, "change the permissions"),
        (errno.EROFS, "change the permissions"),
    ],
)
def test_says_what_to_do_when_the_disk_refuses(tmp_path: Path, number: int, advice: str) -> None:
    def refused(_: Path) -> str:
        raise OSError(number, "refused by the disk")

    with pytest.raises(ModelUnavailableError, match=f"refused by the disk.*{advice}"):
        _get(tmp_path, _recipe(refused))


def test_names_the_cache_when_it_is_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ModelUnavailableError, match="PIPELINESERVE_CACHE names another place"):
        _get(tmp_path / "file" / "cache", _recipe())


def test_a_label_cannot_leave_the_cache() -> None:
    key = Recipe(label="../../etc/passwd", identity={}, build=_never).key
    assert "/" not in key
    assert not key.startswith(".")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"PIPELINESERVE_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/pipelineserve"),
        ({"HOME": "/c"}, "/c/.cache/pipelineserve"),
    ],
)
def test_the_default_cache_follows_the_environment(environ: dict[str, str], expected: str) -> None:
    assert default_cache_dir(environ) == Path(expected)
