"""A tiny llama with grouped key heads, as transformers would hold it and as a GGUF file."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[np.float32]

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>\n' }}{% endfor %}"
)
NUM_HEADS, NUM_KEY_HEADS, HEAD_SIZE, HIDDEN, INNER, NUM_LAYERS = 4, 2, 16, 64, 96, 2


@dataclass(frozen=True)
class TinyGguf:
    """What differs between the files of the tests; valid by default."""

    architecture: str = "llama"
    quantization: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32
    splitting: str = "smollm"
    has_output: bool = False
    num_parts: int = 1
    scaling: gguf.RopeScalingType | None = None
    without: frozenset[str] = frozenset()
    extra: tuple[str, ...] = ()
    end_of_turn_id: int | None = None


@dataclass(frozen=True)
class WrittenGguf:
    """A file, and the unquantised tensors in it under transformers' names."""

    path: Path
    weights: dict[str, Array] = field(default_factory=dict)


@pytest.fixture
def write_gguf(tmp_path: Path) -> Callable[..., WrittenGguf]:
    """Writes a file that differs from `TinyGguf()` in the given fields."""

    def write(**changes: object) -> WrittenGguf:
        spec = replace(TinyGguf(), **changes)  # type: ignore[arg-type]  # checked by the dataclass
        path = tmp_path / "tiny.gguf"
        return WrittenGguf(path, _write(path, spec))

    return write


def _write(path: Path, spec: TinyGguf) -> dict[str, Array]:
    writer = gguf.GGUFWriter(path, spec.architecture)
    tokens = _byte_tokens()
    _add_settings(writer, spec)
    _add_tokenizer(writer, tokens, spec)
    names = _names(spec, len(tokens))
    weights = {}
    rng = np.random.default_rng(7)
    for gguf_name, (name, shape) in names.items():
        weights[name] = rng.standard_normal(shape).astype(np.float32)
        if gguf_name not in spec.without:
            _add_tensor(writer, gguf_name, _in_file_order(gguf_name, weights[name], spec), spec)
    for gguf_name in spec.extra:
        writer.add_tensor(gguf_name, np.ones(8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def _add_settings(writer: gguf.GGUFWriter, spec: TinyGguf) -> None:
    writer.add_block_count(NUM_LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(NUM_HEADS)
    writer.add_head_count_kv(NUM_KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if spec.architecture == "qwen3":
        writer.add_key_length(HEAD_SIZE)
    else:
        writer.add_rope_dimension_count(HEAD_SIZE)
    if spec.num_parts > 1:
        writer.add_uint16("split.count", spec.num_parts)
    if spec.scaling is not None:
        writer.add_rope_scaling_type(spec.scaling)


def _add_tokenizer(writer: gguf.GGUFWriter, tokens: list[str], spec: TinyGguf) -> None:
    control = [gguf.TokenType.CONTROL] * len(SPECIAL_TOKENS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(spec.splitting)
    writer.add_token_list(tokens)
    writer.add_token_types(control + [gguf.TokenType.NORMAL] * (len(tokens) - len(control)))
    writer.add_token_merges(["Ġ Ġ", "h i"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(CHAT_TEMPLATE)
    if spec.end_of_turn_id is not None:
        writer.add_eot_token_id(spec.end_of_turn_id)


def _byte_tokens() -> list[str]:
    # GPT-2's spelling: printable bytes stand for themselves, the others for 256 and up.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(others))]
    return [*SPECIAL_TOKENS, *alphabet, "ĠĠ", "hi"]


def _names(spec: TinyGguf, vocab: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    names: dict[str, tuple[str, tuple[int, ...]]] = {
        "token_embd.weight": ("model.embed_tokens.weight", (vocab, HIDDEN)),
        "output_norm.weight": ("model.norm.weight", (HIDDEN,)),
    }
    if spec.has_output:
        names["output.weight"] = ("lm_head.weight", (vocab, HIDDEN))
    for layer in range(NUM_LAYERS):
        for gguf_leaf, (leaf, shape) in _layer_names(spec).items():
            names[f"blk.{layer}.{gguf_leaf}"] = (f"model.layers.{layer}.{leaf}", shape)
    return names


def _layer_names(spec: TinyGguf) -> dict[str, tuple[str, tuple[int, ...]]]:
    queries, keys = NUM_HEADS * HEAD_SIZE, NUM_KEY_HEADS * HEAD_SIZE
    leaves: dict[str, tuple[str, tuple[int, ...]]] = {
        "attn_norm.weight": ("input_layernorm.weight", (HIDDEN,)),
        "attn_q.weight": ("self_attn.q_proj.weight", (queries, HIDDEN)),
        "attn_k.weight": ("self_attn.k_proj.weight", (keys, HIDDEN)),
        "attn_v.weight": ("self_attn.v_proj.weight", (keys, HIDDEN)),
        "attn_output.weight": ("self_attn.o_proj.weight", (HIDDEN, queries)),
        "ffn_norm.weight": ("post_attention_layernorm.weight", (HIDDEN,)),
        "ffn_gate.weight": ("mlp.gate_proj.weight", (INNER, HIDDEN)),
        "ffn_up.weight": ("mlp.up_proj.weight", (INNER, HIDDEN)),
        "ffn_down.weight": ("mlp.down_proj.weight", (HIDDEN, INNER)),
    }
    if spec.architecture == "qwen2":
        leaves |= {
            "attn_q.bias": ("self_attn.q_proj.bias", (queries,)),
            "attn_k.bias": ("self_attn.k_proj.bias", (keys,)),
            "attn_v.bias": ("self_attn.v_proj.bias", (keys,)),
        }
    if spec.architecture == "qwen3":
        leaves |= {
            "attn_q_norm.weight": ("self_attn.q_norm.weight", (HEAD_SIZE,)),
            "attn_k_norm.weight": ("self_attn.k_norm.weight", (HEAD_SIZE,)),
        }
    return leaves


def _in_file_order(gguf_name: str, weight: Array, spec: TinyGguf) -> Array:
    heads = {"attn_q": NUM_HEADS, "attn_k": NUM_KEY_HEADS}.get(gguf_name.split(".")[-2])
    if heads is None or spec.architecture != "llama":
        return weight
    halves = weight.reshape(heads, 2, HEAD_SIZE // 2, weight.shape[1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def _add_tensor(writer: gguf.GGUFWriter, name: str, weight: Array, spec: TinyGguf) -> None:
    is_quantized = weight.ndim > 1 and spec.quantization != gguf.GGMLQuantizationType.F32
    if not is_quantized:
        writer.add_tensor(name, weight)
        return
    blocks = gguf.quantize(weight, spec.quantization)
    writer.add_tensor(name, blocks, raw_dtype=spec.quantization)
