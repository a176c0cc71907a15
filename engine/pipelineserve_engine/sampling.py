"""From logits to tokens: penalties, bias, temperature, top-k, top-p, min-p, seeded; or greedy.

Chance enters as one uniform number per token, made from the request's seed and the token's position
in the output. So a request's draws depend neither on what else runs nor on preemption or replay.

Log-probabilities are those of the model's own distribution, before any of that. A request whose
token cannot be chosen fails alone: a micro-batch carries requests that have nothing to do with it.
"""

import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch

from pipelineserve_engine.generation import TokenLogprobs
from pipelineserve_engine.stage_messages import (
    LogitAdjustments,
    SampleExtras,
    SampleFailure,
    SamplingSpec,
)

logger = logging.getLogger(__name__)

_UNIFORM_BITS = 53
_LIKELY_TOKENS = 1024
_PLACEHOLDER_TOKEN_ID = 0


@dataclass(frozen=True, slots=True)
class Samples:
    """One token per row, and what else was asked for or went wrong."""

    token_ids: tuple[int, ...]
    extras: SampleExtras | None = None


def sample(logits: torch.Tensor, specs: Sequence[SamplingSpec | None]) -> Samples:
    """Choose one token per row.

    Args:
        logits: [rows, vocabulary], any float type.
        specs: one per row; None is greedy.
    """
    highest, choices = logits.max(dim=-1)
    tokens: list[int] = choices.tolist()
    logprobs: list[TokenLogprobs | None] = [None] * len(tokens)
    failures = []
    # The highest is NaN if any is, so this sees every row that is no distribution.
    is_finite: list[bool] = highest.isfinite().tolist()
    for row, spec in enumerate(specs):
        if not is_finite[row]:
            tokens[row] = _PLACEHOLDER_TOKEN_ID
            failures.append(SampleFailure(row, "the model's logits are not finite numbers"))
        elif spec is not None:
            try:
                tokens[row] = choose(logits[row].float(), spec)
                logprobs[row] = _logprobs(logits[row].float(), tokens[row], spec)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this row's alone
                failures.append(_failure(row, error))
    return Samples(tuple(tokens), _extras(logprobs, failures))


def uniform(seed: int, output_index: int) -> float:
    """The number in [0, 1) that decides a request's token at `output_index`."""
    digest = blake2b(f"{seed}/{output_index}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - _UNIFORM_BITS)) / (1 << _UNIFORM_BITS)


def choose(logits: torch.Tensor, spec: SamplingSpec) -> int:
    """The token that follows, from one row of logits in float32.

    Raises:
        ValueError: penalties or bias made a number of it that is not finite.
    """
    if spec.adjustments is not None:
        logits = adjust(logits, spec.adjustments)
        if not bool(logits.max().isfinite()):
            raise ValueError("the adjusted logits are not finite numbers")
    if spec.temperature <= 0.0:
        return int(logits.argmax())
    probabilities, token_ids = candidates(logits, spec)
    # The distribution function, inverted at the request's uniform number.
    cumulative = probabilities.double().cumsum(dim=-1)
    point = uniform(spec.seed, spec.output_index) * cumulative[-1]
    index = int(torch.searchsorted(cumulative, point, right=True).clamp(max=len(cumulative) - 1))
    return index if token_ids is None else int(token_ids[index])


def adjust(logits: torch.Tensor, adjustments: LogitAdjustments) -> torch.Tensor:
    """A row of logits after the penalties and then the bias.

    The bias comes last, so that -100 bans a token and 100 forces it whatever was said before.
    """
    adjusted = logits.clone()
    if adjustments.seen_token_ids:
        seen = _ids(adjustments.seen_token_ids, logits)
        scores = adjusted[seen]
        penalty = adjustments.repetition_penalty
        adjusted[seen] = torch.where(scores < 0, scores * penalty, scores / penalty)
    if adjustments.output_token_ids:
        counts = _numbers(adjustments.output_counts, "<i4", logits)
        penalties = counts * adjustments.frequency_penalty + adjustments.presence_penalty
        adjusted[_ids(adjustments.output_token_ids, logits)] -= penalties
    if adjustments.bias_token_ids:
        biased = _ids(adjustments.bias_token_ids, logits)
        adjusted[biased] += _numbers(adjustments.bias, "<f4", logits)
    return adjusted


def candidates(
    logits: torch.Tensor, spec: SamplingSpec
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights and ids of the tokens that temperature, top-k, top-p and min-p leave.

    Ids None means all of the vocabulary. Weights are probabilities up to a common factor.
    """
    probabilities = torch.softmax(logits / spec.temperature, dim=-1)
    kept, token_ids = _likeliest(probabilities, spec)
    if spec.min_p <= 0.0:
        return kept, token_ids
    is_likely = kept >= spec.min_p * kept.max()
    kept_ids = is_likely.nonzero().squeeze(-1) if token_ids is None else token_ids[is_likely]
    return kept[is_likely], kept_ids


def _likeliest(
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


def _logprobs(logits: torch.Tensor, token_id: int, spec: SamplingSpec) -> TokenLogprobs | None:
    if spec.num_top_logprobs is None:
        return None
    logprobs = torch.log_softmax(logits, dim=-1)
    top, top_token_ids = logprobs.topk(min(spec.num_top_logprobs, len(logprobs)))
    return TokenLogprobs(
        float(logprobs[token_id]), tuple(top_token_ids.tolist()), tuple(top.tolist())
    )


def _failure(row: int, error: Exception) -> SampleFailure:
    # Only the place and the class: an exception's own message may quote what it worked on.
    place = "".join(traceback.format_tb(error.__traceback__))
    logger.error("sampling failed: %s\n%s", type(error).__name__, place)
    return SampleFailure(row, f"choosing its next token failed ({type(error).__name__})")


def _extras(
    logprobs: list[TokenLogprobs | None], failures: list[SampleFailure]
) -> SampleExtras | None:
    has_logprobs = any(entry is not None for entry in logprobs)
    if not has_logprobs and not failures:
        return None
    return SampleExtras(tuple(logprobs) if has_logprobs else (), tuple(failures))


def _ids(buffer: bytes, beside: torch.Tensor) -> torch.Tensor:
    return torch.tensor(np.frombuffer(buffer, "<i4").astype(np.int64), device=beside.device)


def _numbers(buffer: bytes, dtype: str, beside: torch.Tensor) -> torch.Tensor:
    numbers = np.frombuffer(buffer, dtype).astype(np.float32)
    return torch.tensor(numbers, device=beside.device)
