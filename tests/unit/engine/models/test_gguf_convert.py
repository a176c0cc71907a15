"""A converted GGUF file is the same model, or is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.models import SilentProgress
from pipelineserve_engine.models.gguf_convert import convert_gguf
from pipelineserve_engine.models.gguf_weights import paired_to_halved

WriteGguf = Callable[..., Any]  # conftest's `write_gguf`; conftest cannot be imported

Q8_0, F16 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "converted"
    path.mkdir()
    return path


def _convert(path: Path, folder: Path) -> None:
    convert_gguf(path, folder, SilentProgress())


def _json(path: Path) -> dict[str, object]:
    value = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("has_output", [True, False])
def test_gives_back_the_weights_that_the_file_was_made_from(
    write_gguf: WriteGguf, folder: Path, architecture: str, has_output: bool
) -> None:
    written = write_gguf(architecture=architecture, has_output=has_output)
    _convert(written.path, folder)
    converted = load_file(folder / "model.safetensors")
    assert set(converted) == set(written.weights)
    for name, weight in written.weights.items():
        np.testing.assert_array_equal(converted[name], weight, err_msg=name)


@pytest.mark.parametrize("quantization", [Q8_0, F16])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_loads_as_the_same_model_that_transformers_reads_from_the_file(
    write_gguf: WriteGguf,
    folder: Path,
    architecture: str,
    quantization: gguf.GGMLQuantizationType,
) -> None:
    # Takes seconds to import; only this test needs it.
    from transformers import AutoModelForCausalLM  # noqa: PLC0415
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint  # noqa: PLC0415

    written = write_gguf(architecture=architecture, quantization=quantization, has_output=True)
    _convert(written.path, folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    found = model.state_dict()
    theirs = load_gguf_checkpoint(written.path, return_tensors=True, model_to_load=model)
    assert set(found) == set(theirs["tensors"])
    for name, weight in theirs["tensors"].items():
        assert found[name].equal(weight.float()), name
    assert model.config.rope_parameters["rope_theta"] == theirs["config"]["rope_theta"]


def test_ties_the_embeddings_when_the_file_has_no_output_matrix(
    write_gguf: WriteGguf, folder: Path
) -> None:
    _convert(write_gguf(has_output=False).path, folder)
    assert _json(folder / "config.json")["tie_word_embeddings"] is True
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")


def test_writes_the_settings_of_the_file_into_the_configuration(
    write_gguf: WriteGguf, folder: Path
) -> None:
    _convert(write_gguf().path, folder)
    config = _json(folder / "config.json")
    expected = {
        "model_type": "llama",
        "hidden_size": 64,
        "head_dim": 16,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 128,
        "eos_token_id": 2,
    }
    assert {name: config[name] for name in expected} == expected


def test_an_end_of_turn_token_ends_generation_too(write_gguf: WriteGguf, folder: Path) -> None:
    _convert(write_gguf(end_of_turn_id=0).path, folder)
    assert _json(folder / "generation_config.json")["eos_token_id"] == [2, 0]


def test_splits_digits_and_spaces_as_the_vocabulary_was_learned(
    write_gguf: WriteGguf, folder: Path
) -> None:
    from tokenizers import Tokenizer  # noqa: PLC0415 - beside transformers

    _convert(write_gguf(splitting="smollm").path, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoding = tokenizer.encode("hi  12<|im_end|>")
    assert encoding.tokens == ["hi", "ĠĠ", "1", "2", "<|im_end|>"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architecture": "falcon"}, "'falcon'"),
        ({"splitting": "klingon"}, "'klingon'"),
        ({"num_parts": 3}, "3 parts"),
        ({"scaling": gguf.RopeScalingType.YARN}, "'yarn'"),
        ({"without": frozenset({"blk.1.attn_k.weight"})}, "missing: blk.1.attn_k.weight"),
        ({"extra": ("rope_freqs.weight",)}, "not known: rope_freqs.weight"),
    ],
)
def test_refuses_what_it_would_convert_to_another_model(
    write_gguf: WriteGguf, folder: Path, changes: dict[str, object], named: str
) -> None:
    with pytest.raises(ModelUnavailableError, match=named):
        _convert(write_gguf(**changes).path, folder)


@pytest.mark.parametrize("kept_bytes", [0, 3, 40, 4000, 100_000])
def test_says_that_a_file_is_damaged_when_its_end_is_missing(
    write_gguf: WriteGguf, folder: Path, kept_bytes: int
) -> None:
    path = write_gguf().path
    path.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(ModelUnavailableError, match=r"tiny\.gguf is not a readable GGUF file"):
        _convert(path, folder)


def test_stops_before_the_work_when_the_disk_is_too_small(
    write_gguf: WriteGguf, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    with pytest.raises(ModelUnavailableError, match="free there"):
        _convert(write_gguf().path, folder)
    assert list(folder.iterdir()) == []


@given(heads=st.integers(1, 9), half_size=st.integers(1, 20))
def test_the_row_order_undoes_the_pairing_for_any_shape(heads: int, half_size: int) -> None:
    original = np.arange(heads * 2 * half_size)
    paired = original.reshape(heads, 2, half_size).swapaxes(1, 2).reshape(-1)
    np.testing.assert_array_equal(paired[paired_to_halved(len(original), heads)], original)
