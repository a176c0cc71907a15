"""What makes a folder usable, and how its faults are named."""

import json
from pathlib import Path

import pytest

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.models.files import ModelFiles, check_model_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    return tmp_path


def _make_sharded(folder: Path, shards: dict[str, str]) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": shards}), encoding="utf-8"
    )


def test_accepts_weights_in_one_file(folder: Path) -> None:
    assert check_model_folder(folder, "here") == ModelFiles(folder, "here")


def test_accepts_weights_in_shards(folder: Path) -> None:
    _make_sharded(folder, {"a": "model-1.safetensors"})
    (folder / "model-1.safetensors").write_bytes(b"weights")
    assert check_model_folder(folder, "here").folder == folder


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_names_the_file_that_is_missing(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelUnavailableError) as caught:
        check_model_folder(folder, "here")
    faults = str(caught.value).split(". Expected")[0]
    assert name in faults
    assert "missing" in faults


def test_names_everything_that_is_missing_at_once(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelUnavailableError, match=r"config\.json is missing; the tokenizer"):
        check_model_folder(folder, "here")


def test_names_the_shard_that_is_missing(folder: Path) -> None:
    _make_sharded(folder, {"a": "model-1.safetensors"})
    with pytest.raises(ModelUnavailableError, match=r"model-1\.safetensors, which"):
        check_model_folder(folder, "here")


def test_refuses_an_index_that_points_outside_the_folder(folder: Path) -> None:
    _make_sharded(folder, {"a": "../secret.safetensors"})
    with pytest.raises(ModelUnavailableError, match="outside the folder"):
        check_model_folder(folder, "here")


@pytest.mark.parametrize("text", ["", "[]", "{}", "\x00", '{"model_type": 3}'])
def test_says_that_config_json_is_not_a_configuration(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelUnavailableError, match=r"config\.json (is not|names no)"):
        check_model_folder(folder, "here")


def test_explains_why_pickled_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelUnavailableError, match="pickle files"):
        check_model_folder(folder, "here")


def test_says_that_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match="is not a folder"):
        check_model_folder(tmp_path / "absent", "here")
