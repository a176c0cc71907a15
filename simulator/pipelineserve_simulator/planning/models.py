"""Models to plan for: those of the shipped profiles by name, or any by its `config.json`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_simulator.hardware.catalogue import load_profile, profile_names
from pipelineserve_simulator.hardware.description import ModelShape

_Count = Annotated[int, Field(ge=1, strict=True)]
_ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
# Query and KV heads, from the models' published configurations: a profile does not say them. A
# profile of another model is for measuring; to plan for that model takes its `config.json`.
_HEADS = {"Qwen2.5-32B": (40, 8), "Qwen2.5-14B": (40, 8)}


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model as a planner needs it.

    Attributes:
        shape: its sizes.
        num_heads: query heads; tensor parallelism shares them out whole.
        num_kv_heads: heads of keys and values; the same.
    """

    shape: ModelShape
    num_heads: int
    num_kv_heads: int


def find_model(name_or_path: str) -> PlannedModel:
    """A model by the name in a shipped profile, in any case, or by a path to its configuration.

    Raises:
        InvalidInputError: it is neither, or the configuration is not one that can be planned for.
    """
    named = {model.shape.name.lower(): model for model in _named_models()}
    if name_or_path.lower() in named:
        return named[name_or_path.lower()]
    path = Path(name_or_path)
    if path.is_dir():
        path /= "config.json"
    if not path.is_file():
        known = ", ".join(sorted(named))
        text = f'got "{name_or_path}", expected {known}, or the path of a config.json'
        raise InvalidInputError("the model", [Fault("model", text)])
    return model_from_config(path.read_text(encoding="utf-8"), str(path))


def model_from_config(text: str, source: str) -> PlannedModel:
    """A model from the text of a Hugging Face `config.json`.

    Args:
        text: JSON; a dense decoder in 16 or 32 bits.
        source: what errors call it, and the model where it has no name of its own.

    Raises:
        InvalidInputError: it is not such a configuration; holds every fault.
    """
    subject = f"the model configuration {source}"
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(subject, [Fault("", f"is not JSON: {error}")]) from error
    try:
        config = _Config.model_validate(content)
    except ValidationError as error:
        faults = [_fault(details) for details in error.errors()]
        raise InvalidInputError(subject, faults) from error
    return config.planned(_name(content, source))


class _Config(BaseModel):
    """The fields of a `config.json` that sizes follow from."""

    model_config = ConfigDict(frozen=True, extra="allow")

    num_hidden_layers: _Count
    hidden_size: _Count
    intermediate_size: _Count
    num_attention_heads: _Count
    vocab_size: _Count
    num_key_value_heads: _Count | None = None
    head_dim: _Count | None = None
    torch_dtype: str | None = None
    dtype: str | None = None

    @model_validator(mode="after")
    def _can_be_planned(self) -> Self:
        extras = self.model_extra or {}
        if extras.get("quantization_config"):
            raise ValueError("quantization_config: only weights of 16 or 32 bits can be planned")
        experts = {"num_experts", "num_local_experts", "n_routed_experts"}
        if found := sorted(name for name in experts if extras.get(name)):
            raise ValueError(
                f"{found[0]}: mixtures of experts cannot be planned, only dense models"
            )
        if "kv_lora_rank" in extras:
            raise ValueError("kv_lora_rank: compressed KV cannot be planned")
        if self._precision not in _ELEMENT_BYTES:
            known = ", ".join(_ELEMENT_BYTES)
            raise ValueError(f"torch_dtype: got {self._precision}, expected one of {known}")
        return self

    @property
    def _precision(self) -> str:
        return self.dtype or self.torch_dtype or "bfloat16"

    def planned(self, name: str) -> PlannedModel:
        element_bytes = _ELEMENT_BYTES[self._precision]
        kv_heads = self.num_key_value_heads or self.num_attention_heads
        head = self.head_dim or self.hidden_size // self.num_attention_heads
        attention = 2 * self.hidden_size * head * (self.num_attention_heads + kv_heads)
        shape = ModelShape(
            name=name,
            num_layers=self.num_hidden_layers,
            hidden_size=self.hidden_size,
            layer_parameters=attention + 3 * self.hidden_size * self.intermediate_size,
            vocabulary_size=self.vocab_size,
            parameter_bytes=element_bytes,
            kv_bytes_per_layer_token=2 * kv_heads * head * element_bytes,
        )
        return PlannedModel(shape, self.num_attention_heads, kv_heads)


def _named_models() -> list[PlannedModel]:
    shapes = [load_profile(name).model for name in profile_names()]
    return [PlannedModel(shape, *_HEADS[shape.name]) for shape in shapes if shape.name in _HEADS]


def _name(content: Any, source: str) -> str:
    """What the file calls itself, else its folder, which is usually the model's name."""
    given = content.get("_name_or_path") if isinstance(content, dict) else None
    return str(given) if given else Path(source).resolve().parent.name


def _fault(details: Any) -> Fault:
    path = ".".join(map(str, details["loc"]))
    message = str(details["msg"]).removeprefix("Value error, ")
    if details["type"] == "missing":
        message = "is missing, expected a whole number from 1"
    elif path:
        message = f"got {details['input']!r}, {message[0].lower()}{message[1:]}"
    return Fault(path, message)
