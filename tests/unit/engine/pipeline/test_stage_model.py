"""A stage holds its own weights only, and says what is wrong with a folder that will not do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.stage_model import StageModel, StageShape
from tiny_models import Architecture, TinyModel

MakeModel = Callable[[Architecture, bool], TinyModel]


def a_shape(
    *, first: int = 0, layers: int = 5, is_first: bool = True, is_last: bool = True
) -> StageShape:
    return StageShape(first, layers, is_first, is_last, 64, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
def test_stages_hold_each_weight_once_and_a_tied_head_again(
    tiny_model: MakeModel, is_tied: bool
) -> None:
    model = tiny_model(Architecture.LLAMA, is_tied)
    first = StageModel(model.folder, a_shape(layers=2, is_last=False))
    last = StageModel(model.folder, a_shape(first=2, layers=3, is_first=False))
    weights = load_file(model.folder / "model.safetensors")
    stored = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    embedding = weights["model.embed_tokens.weight"]
    again = embedding.numel() * embedding.element_size() if is_tied else 0
    assert first.weight_bytes + last.weight_bytes == stored + again


def test_a_stage_never_opens_the_weights_of_others(llama: TinyModel, tmp_path: Path) -> None:
    weights = load_file(llama.folder / "model.safetensors")
    mine = {name: t for name, t in weights.items() if ".layers.1." in name or ".layers.2." in name}
    save_file(mine, tmp_path / "mine.safetensors")
    index = {
        name: "mine.safetensors" if name in mine else "missing.safetensors" for name in weights
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    shutil.copy(llama.folder / "config.json", tmp_path)
    stage = StageModel(tmp_path, a_shape(first=1, layers=2, is_first=False, is_last=False))
    assert stage.weight_bytes == sum(t.numel() * t.element_size() for t in mine.values())


def edited_config(llama: TinyModel, folder: Path, **changes: object) -> Path:
    shutil.copytree(llama.folder, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def test_an_unknown_architecture_is_refused_with_those_that_work(
    llama: TinyModel, tmp_path: Path
) -> None:
    folder = edited_config(llama, tmp_path, architectures=["MambaForCausalLM"])
    with pytest.raises(ModelUnavailableError, match=r"got architecture MambaForCausalLM.*Llama"):
        StageModel(folder, a_shape())


def test_sliding_window_attention_is_refused(tiny_model: MakeModel, tmp_path: Path) -> None:
    folder = edited_config(
        tiny_model(Architecture.QWEN2, True), tmp_path,
        layer_types=["sliding_attention"] * 5, use_sliding_window=True, sliding_window=8,
    )  # fmt: skip
    with pytest.raises(ModelUnavailableError, match="sliding-window attention is not supported"):
        StageModel(folder, a_shape())


def test_missing_tensors_are_named(llama: TinyModel, tmp_path: Path) -> None:
    folder = edited_config(llama, tmp_path, num_hidden_layers=6)
    with pytest.raises(ModelUnavailableError, match=r"lack model\.layers\.5"):
        StageModel(folder, a_shape(layers=6))


def test_a_config_of_another_size_is_refused(llama: TinyModel, tmp_path: Path) -> None:
    folder = edited_config(llama, tmp_path, intermediate_size=96)
    with pytest.raises(ModelUnavailableError, match=r"expected shape \(96, 32\), got \(64, 32\)"):
        StageModel(folder, a_shape())


def test_damaged_weights_are_refused(llama: TinyModel, tmp_path: Path) -> None:
    folder = edited_config(llama, tmp_path)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ModelUnavailableError, match=r"model\.safetensors"):
        StageModel(folder, a_shape())
