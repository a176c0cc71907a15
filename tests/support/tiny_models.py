"""Random tiny models that transformers can run too, so that it is the reference."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY_SIZE = 300
NUM_LAYERS = 5
HIDDEN_SIZE = 32
MAX_CONTEXT_TOKENS = 512


class Architecture(Enum):
    """Model families, each with what sets it apart from the others."""

    LLAMA = "llama"
    QWEN2 = "qwen2"  # biases on queries, keys and values
    QWEN3 = "qwen3"  # norms on queries and keys, a head size of its own


@dataclass(frozen=True)
class TinyModel:
    """A model on disk, and the same in memory as the reference."""

    folder: Path
    reference: PreTrainedModel

    def greedy(self, prompt: Sequence[int], num_tokens: int) -> list[int]:
        """What transformers' own greedy generation continues the prompt with."""
        output = self.reference.generate(
            torch.tensor([list(prompt)]),
            attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
            max_new_tokens=num_tokens,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
        tokens: list[int] = output[0, len(prompt) :].tolist()
        return tokens


def save_tiny_model(
    folder: Path, architecture: Architecture = Architecture.LLAMA, *, is_tied: bool = True,
    seed: int = 0, max_context_tokens: int = MAX_CONTEXT_TOKENS, head_size: int | None = None,
) -> TinyModel:  # fmt: skip
    """Make a random model, save it, keep it as its own reference."""
    torch.manual_seed(seed)
    config = _config(architecture, is_tied=is_tied, max_context_tokens=max_context_tokens)
    if head_size is not None:
        config.head_dim = head_size
    model = AutoModelForCausalLM.from_config(config).eval()
    # By default the embedding outweighs the layers, and each token only repeats itself.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed" in name:
                parameter.normal_(std=0.1)
            elif parameter.dim() > 1:
                parameter.normal_(std=2.0 / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return TinyModel(folder, model)


def _config(
    architecture: Architecture, *, is_tied: bool, max_context_tokens: int
) -> PretrainedConfig:
    sizes = {
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": 64,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": max_context_tokens,
        "tie_word_embeddings": is_tied,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    match architecture:
        case Architecture.LLAMA:
            return LlamaConfig(**sizes)
        case Architecture.QWEN2:
            return Qwen2Config(**sizes)
        case Architecture.QWEN3:
            return Qwen3Config(**sizes, head_dim=16)
