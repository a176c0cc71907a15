"""Models by name and by their configuration."""

import json
from pathlib import Path

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_simulator.hardware.catalogue import load_profile
from pipelineserve_simulator.planning.models import find_model, model_from_config
from plan_questions import LLAMA_70B, QWEN_HALF_B, model_of

QWEN_32B = {
    "num_hidden_layers": 64,
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "vocab_size": 152064,
    "torch_dtype": "bfloat16",
}


def test_the_models_of_shipped_profiles_have_names() -> None:
    model = find_model("qwen2.5-32b")
    assert model.shape == load_profile("a100-40gb-pcie/qwen2.5-32b").model
    assert (model.num_heads, model.num_kv_heads) == (40, 8)


def test_a_configuration_gives_the_sizes_of_the_shipped_description() -> None:
    read, shipped = model_of(QWEN_32B).shape, find_model("Qwen2.5-32B").shape
    assert read.layer_parameters == pytest.approx(shipped.layer_parameters, rel=1e-4)
    assert read.kv_bytes_per_layer_token == shipped.kv_bytes_per_layer_token
    assert (read.num_layers, read.vocabulary_size) == (64, 152064)


@pytest.mark.parametrize(("config", "billions"), [(LLAMA_70B, 70.6), (QWEN_HALF_B, 0.63)])
def test_parameters_add_up_to_what_the_model_is_known_for(
    config: dict[str, object], billions: float
) -> None:
    shape = model_of(config).shape
    tables = 2 * shape.vocabulary_size * shape.hidden_size
    total = shape.num_layers * shape.layer_parameters + tables
    assert total == pytest.approx(billions * 1e9, rel=0.01)


def test_heads_have_their_own_size_where_the_configuration_says_so() -> None:
    wide = model_of({**QWEN_HALF_B, "head_dim": 128}).shape
    assert wide.kv_bytes_per_layer_token == 2 * 2 * 128 * 2


def test_without_kv_heads_each_query_head_has_its_own() -> None:
    config = {name: value for name, value in QWEN_HALF_B.items() if name != "num_key_value_heads"}
    assert model_of(config).num_kv_heads == 14


def test_precision_counts() -> None:
    single = model_of({**QWEN_HALF_B, "torch_dtype": "float32"}).shape
    assert single.layer_bytes == 2 * model_of(QWEN_HALF_B).shape.layer_bytes


def test_a_folder_stands_for_its_configuration_and_names_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN_HALF_B))
    assert find_model(str(folder)).shape.name == "my-model"
    assert find_model(str(folder)) == find_model(str(folder / "config.json"))


def test_a_name_that_is_neither_is_answered_with_what_there_is() -> None:
    with pytest.raises(InvalidInputError, match=r"model: got \"gpt-9\", expected .*qwen2.5-32b"):
        find_model("gpt-9")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers: got 0, "),
        ({"hidden_size": "896"}, "hidden_size: got '896', "),
        ({"torch_dtype": "int4"}, "torch_dtype: got int4, expected one of bfloat16"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: only weights of 16 or 32"),
        ({"num_local_experts": 8}, "num_local_experts: mixtures of experts cannot be planned"),
        ({"kv_lora_rank": 512}, "kv_lora_rank: compressed KV cannot be planned"),
    ],
)
def test_what_cannot_be_planned_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        model_of({**QWEN_HALF_B, **change})


def test_all_missing_fields_are_named_at_once() -> None:
    with pytest.raises(InvalidInputError, match="hidden_size: is missing") as caught:
        model_from_config("{}", "config.json")
    assert len(caught.value.faults) == 5


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_text_that_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"the model configuration config\.json"):
        model_from_config(text, "config.json")
