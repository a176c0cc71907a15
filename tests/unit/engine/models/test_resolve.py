"""From URIs to folders, and the command that prints them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelineserve.errors import InvalidInputError, ModelUnavailableError
from pipelineserve_engine.models import ModelFiles, SilentProgress, resolve_model
from pipelineserve_engine.models.__main__ import main

WriteGguf = Callable[..., Any]  # conftest's `write_gguf`; conftest cannot be imported


def _resolve(uri: str, cache_dir: Path, revision: str | None = None) -> ModelFiles:
    return resolve_model(uri, revision=revision, cache_dir=cache_dir, progress=SilentProgress())


def _model_folder(parent: Path) -> Path:
    folder = parent / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder


def test_a_folder_is_used_where_it_lies(tmp_path: Path) -> None:
    folder = _model_folder(tmp_path)
    files = _resolve(f"file://{folder}", tmp_path / "cache")
    assert files.folder == folder
    assert not (tmp_path / "cache").exists()


def test_names_what_a_folder_lacks(tmp_path: Path) -> None:
    folder = _model_folder(tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(ModelUnavailableError, match=r"config\.json is missing"):
        _resolve(f"file://{folder}", tmp_path / "cache")


def test_a_gguf_file_is_converted_once(tmp_path: Path, write_gguf: WriteGguf) -> None:
    uri = f"file://{write_gguf().path}"
    first = _resolve(uri, tmp_path / "cache")
    before = (first.folder / "model.safetensors").stat()
    second = _resolve(uri, tmp_path / "cache")
    assert second == first
    assert (second.folder / "model.safetensors").stat().st_ino == before.st_ino


def test_a_gguf_file_that_changed_is_converted_again(tmp_path: Path, write_gguf: WriteGguf) -> None:
    path = write_gguf().path
    first = _resolve(f"file://{path}", tmp_path / "cache")
    os.utime(path, ns=(1, 1))
    assert _resolve(f"file://{path}", tmp_path / "cache").folder != first.folder


def test_says_that_a_gguf_file_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match="there is no file"):
        _resolve(f"file://{tmp_path}/absent.gguf", tmp_path / "cache")


def test_a_volume_claim_needs_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match=r"inside a cluster.*file:///"):
        _resolve("pvc://weights/qwen", tmp_path / "cache")


def test_a_local_path_has_no_revision(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="revision: got 'main'"):
        _resolve(f"file://{_model_folder(tmp_path)}", tmp_path / "cache", revision="main")


def test_an_unknown_scheme_is_the_callers_fault(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="s3://bucket"):
        _resolve("s3://bucket/model", tmp_path / "cache")


def test_the_command_prints_the_folder_and_nothing_else(
    tmp_path: Path, write_gguf: WriteGguf, capsys: pytest.CaptureFixture[str]
) -> None:
    uri, cache_dir = f"file://{write_gguf().path}", tmp_path / "cache"
    assert main([uri, "--cache-dir", str(cache_dir)]) == 0
    output = capsys.readouterr()
    assert output.out == f"{_resolve(uri, cache_dir).folder}\n"
    assert "Converting the weights" in output.err


def test_the_command_fails_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pvc://weights/qwen", "--cache-dir", str(tmp_path)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: pvc://weights/qwen")


def test_the_command_links_to_the_folder_whatever_the_link_was_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, link = _model_folder(tmp_path), tmp_path / "links" / "current"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "gone")
    (link.parent / f".current.{os.getpid()}").symlink_to(tmp_path / "left")
    assert main([f"file://{folder}", f"--link={link}"]) == 0
    assert link.readlink() == folder
    assert [path.name for path in link.parent.iterdir()] == ["current"]
    assert capsys.readouterr().out == f"{folder}\n"


def test_a_link_that_cannot_be_made_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, link = _model_folder(tmp_path), tmp_path / "nowhere" / "current"
    assert main([f"file://{folder}", f"--link={link}"]) == 1
    assert "cannot be read or stored" in capsys.readouterr().err
