"""From logits to tokens: greedy, temperature, top-k, top-p, seeded.

Chance enters as one uniform number per token, made from the request's seed and the token's position
in the output. So a request's draws depend neither on what else runs nor on preemption or replay.
"""

from collections.abc import Sequence
from hashlib import blake2b

import torch

from pipelineserve_engine.stage_messages import SamplingSpec

_UNIFORM_BITS = 53
_LIKELY_TOKENS = 1024


def sample(logits: torch.Tensor, specs: Sequence[SamplingSpec | None]) -> list[int]:
    """Draw one token per row.

    Args:
        logits: [rows, vocabulary], any float type.
        specs: one per row; None is greedy.

    Returns:
        Token ids, one per row.
    """
    tokens: list[int] = logits.argmax(dim=-1).tolist()
    for row, spec in enumerate(specs):
        if spec is not None:
            tokens[row] = _draw(logits[row].float(), spec)
    return tokens


def uniform(seed: int, output_index: int) -> float:
    """The number in [0, 1) that decides a request's token at `output_index`."""
    digest = blake2b(f"{seed}/{output_index}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - _UNIFORM_BITS)) / (1 << _UNIFORM_BITS)


def _draw(logits: torch.Tensor, spec: SamplingSpec) -> int:
    """Invert the distribution function at the request's uniform number."""
    probabilities, token_ids = _candidates(torch.softmax(logits / spec.temperature, dim=-1), spec)
    cumulative = probabilities.double().cumsum(dim=-1)
    point = uniform(spec.seed, spec.output_index) * cumulative[-1]
    index = int(torch.searchsorted(cumulative, point, right=True).clamp(max=len(cumulative) - 1))
    return index if token_ids is None else int(token_ids[index])


def _candidates(
    probabilities: torch.Tensor, spec: SamplingSpec
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What top-k, then top-p leave, likeliest first; token ids None means all, unsorted."""
    vocabulary = probabilities.shape[-1]
    if spec.top_k and spec.top_k < vocabulary:
        kept, token_ids = probabilities.topk(spec.top_k)
        kept = kept / kept.sum()
    elif spec.top_p < 1.0:
        kept, token_ids = probabilities.topk(min(vocabulary, _LIKELY_TOKENS))
        if float(kept.sum()) < spec.top_p:
            kept, token_ids = probabilities.sort(descending=True)  # a flat distribution: rare, slow
    else:
        return probabilities, None
    before = kept.cumsum(dim=-1) - kept
    is_needed = before < spec.top_p
    is_needed[0] = True
    return kept[is_needed], token_ids[is_needed]
