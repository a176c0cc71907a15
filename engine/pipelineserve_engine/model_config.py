"""A model's config as the engine needs it: is it supported, how large is it, how is it cut."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, PretrainedConfig

from pipelineserve.errors import ModelUnavailableError
from pipelineserve.partition import LayerCosts

SUPPORTED_ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

# Rows of the head per row of a layer: prefill tokens pass the layers but not the head.
HEAD_ROW_RATIO = 0.5


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes that memory and cost follow from."""

    num_layers: int
    hidden_size: int
    num_kv_heads: int
    head_dim: int
    vocabulary_size: int
    intermediate_size: int
    num_heads: int
    max_context_tokens: int
    has_tied_head: bool

    def kv_bytes_per_token(self, num_layers: int, dtype: torch.dtype) -> int:
        """Bytes of keys and values that one token takes in `num_layers` layers."""
        return 2 * num_layers * self.num_kv_heads * self.head_dim * dtype.itemsize

    def weight_bytes(self, num_stages: int, dtype: torch.dtype) -> int:
        """Bytes of the parameters of all stages together, small biases left out.

        A head that is tied to the embedding is there twice where the two lie in different stages.
        """
        num_tables = 1 if self.has_tied_head and num_stages == 1 else 2
        layer = round(self.costs.layer) + 2 * self.hidden_size
        tables = num_tables * self.vocabulary_size * self.hidden_size
        return (self.num_layers * layer + tables + self.hidden_size) * dtype.itemsize

    @property
    def costs(self) -> LayerCosts:
        """Multiplications per token; reading an embedding row is next to nothing."""
        attention = 2 * self.hidden_size * self.head_dim * (self.num_heads + self.num_kv_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size
        head = self.hidden_size * self.vocabulary_size * HEAD_ROW_RATIO
        return LayerCosts(layer=layer, embedding=self.hidden_size, head=head)


def load_config(folder: Path) -> PretrainedConfig:
    """Read and check config.json.

    Raises:
        ModelUnavailableError: unreadable, or a model that this engine cannot run right.
    """
    if not (folder / "config.json").is_file():
        raise ModelUnavailableError(
            f"{folder}: expected a folder with config.json and safetensors, found no config.json; "
            "check the path"
        )
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ModelUnavailableError(f"{folder / 'config.json'}: cannot be read: {error}") from error
    architectures = config.architectures or ["none named"]
    if architectures[0] not in SUPPORTED_ARCHITECTURES:
        raise ModelUnavailableError(
            f"{folder / 'config.json'}: got architecture {architectures[0]}, "
            f"expected one of {', '.join(SUPPORTED_ARCHITECTURES)}; choose such a model"
        )
    layer_types = getattr(config, "layer_types", None) or []
    if "sliding_attention" in layer_types:
        raise ModelUnavailableError(
            f"{folder / 'config.json'}: sliding-window attention is not supported by this engine; "
            "set use_sliding_window to false if the model was trained to work without it"
        )
    return config


def shape_of(config: PretrainedConfig) -> ModelShape:
    """Pick the sizes out of a supported model's config."""
    default_head_dim = config.hidden_size // config.num_attention_heads
    return ModelShape(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        num_kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or default_head_dim,
        vocabulary_size=config.vocab_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_attention_heads,
        max_context_tokens=config.max_position_embeddings,
        has_tied_head=bool(config.tie_word_embeddings),
    )
