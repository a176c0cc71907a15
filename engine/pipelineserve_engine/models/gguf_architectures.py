"""How GGUF names the tensors and settings of each architecture that can be converted."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelineserve.errors import ModelUnavailableError
from pipelineserve_engine.models.gguf_metadata import GgufMetadata


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture under both of its names.

    Attributes:
        model_type: transformers' name, for config.json.
        class_name: transformers' class, for config.json.
        block_tensors: per-layer tensors, GGUF's name to transformers', without the layer's prefix.
        rotary_heads: tensors whose rows GGUF pairs up for its rotary embedding, with the metadata
            key of their number of heads; transformers keeps the two halves of a head apart.
        head_size_keys: where the size of a head may be written, first found wins.
    """

    model_type: str
    class_name: str
    block_tensors: Mapping[str, str]
    rotary_heads: Mapping[str, str]
    head_size_keys: tuple[str, ...]


MODEL_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
OUTPUT_TENSOR = ("output.weight", "lm_head.weight")

_DECODER_TENSORS = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}

ARCHITECTURES = {
    "llama": Architecture(
        model_type="llama",
        class_name="LlamaForCausalLM",
        block_tensors=_DECODER_TENSORS,
        rotary_heads={
            "attn_q.weight": "attention.head_count",
            "attn_k.weight": "attention.head_count_kv",
        },
        head_size_keys=("attention.key_length", "rope.dimension_count"),
    ),
    "qwen2": Architecture(
        model_type="qwen2",
        class_name="Qwen2ForCausalLM",
        block_tensors=_DECODER_TENSORS
        | {
            "attn_q.bias": "self_attn.q_proj.bias",
            "attn_k.bias": "self_attn.k_proj.bias",
            "attn_v.bias": "self_attn.v_proj.bias",
        },
        rotary_heads={},
        head_size_keys=(),
    ),
    "qwen3": Architecture(
        model_type="qwen3",
        class_name="Qwen3ForCausalLM",
        block_tensors=_DECODER_TENSORS
        | {
            "attn_q_norm.weight": "self_attn.q_norm.weight",
            "attn_k_norm.weight": "self_attn.k_norm.weight",
        },
        rotary_heads={},
        head_size_keys=("attention.key_length",),
    ),
}


def architecture_of(metadata: GgufMetadata) -> Architecture:
    """The table's entry for this file.

    Raises:
        ModelUnavailableError: the architecture, or its way of scaling positions, is not supported.
    """
    if (architecture := ARCHITECTURES.get(metadata.architecture)) is None:
        raise ModelUnavailableError(
            f"{metadata.name}: the GGUF architecture {metadata.architecture!r} cannot be "
            f"converted; expected one of {', '.join(sorted(ARCHITECTURES))}. Use the model's "
            "original checkpoint with hf://organisation/name instead."
        )
    scaling = metadata.optional_text(f"{metadata.architecture}.rope.scaling.type")
    if scaling not in (None, "none"):
        raise ModelUnavailableError(
            f"{metadata.name}: positions are scaled ({scaling!r}), which is not converted from "
            "GGUF; expected no scaling. Use the model's original checkpoint with "
            "hf://organisation/name instead."
        )
    return architecture


def model_config(
    architecture: Architecture, metadata: GgufMetadata, *, vocab_size: int, is_tied: bool
) -> dict[str, object]:
    """The contents of config.json, from the file's metadata."""
    config: dict[str, object] = {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "dtype": "float32",
        "hidden_act": "silu",
        "hidden_size": metadata.setting("embedding_length"),
        "intermediate_size": metadata.setting("feed_forward_length"),
        "max_position_embeddings": metadata.setting("context_length"),
        "num_attention_heads": metadata.setting("attention.head_count"),
        "num_hidden_layers": metadata.setting("block_count"),
        "num_key_value_heads": num_heads(metadata, "attention.head_count_kv"),
        "rms_norm_eps": metadata.number_setting("attention.layer_norm_rms_epsilon"),
        "rope_theta": metadata.number_setting("rope.freq_base", default=10000.0),
        "tie_word_embeddings": is_tied,
        "vocab_size": vocab_size,
        **special_token_ids(metadata),
    }
    if (head_size := _head_size(architecture, metadata)) is not None:
        config["head_dim"] = head_size
    return config


def special_token_ids(metadata: GgufMetadata) -> dict[str, object]:
    """`bos_token_id`, `eos_token_id` (a list where a turn has its own end) and `pad_token_id`."""
    found = {
        name: metadata.optional_integer(f"tokenizer.ggml.{key}_token_id")
        for name, key in (("bos_token_id", "bos"), ("pad_token_id", "padding"))
    }
    ends = [
        metadata.optional_integer(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")
    ]
    distinct_ends = list(dict.fromkeys(end for end in ends if end is not None))
    ids: dict[str, object] = {name: value for name, value in found.items() if value is not None}
    if distinct_ends:
        ids["eos_token_id"] = distinct_ends if len(distinct_ends) > 1 else distinct_ends[0]
    return ids


def num_heads(metadata: GgufMetadata, key: str) -> int:
    """A count of heads; a file without a separate count of key heads has as many as query heads."""
    return metadata.setting(key, default=metadata.setting("attention.head_count"))


def _head_size(architecture: Architecture, metadata: GgufMetadata) -> int | None:
    for key in architecture.head_size_keys:
        if (size := metadata.optional_integer(f"{metadata.architecture}.{key}")) is not None:
            return size
    return None
