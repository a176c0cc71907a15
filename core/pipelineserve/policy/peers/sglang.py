"""SGLang's dynamic chunking: later pieces of a long prompt shrink, so that each takes as long.

As in SGLang 0.5 (`--enable-dynamic-chunking`): the time of a whole prompt of l tokens is fitted as
a·l² + b·l + c before serving; the next piece of a prompt with a history of L tokens has x tokens
with f(L + x) - f(L) = f(chunk) - f(0). It sees no decodes, no other slot, no queue and no target.
Its decodes are `SlotBound`'s. Prompts and decodes share a micro-batch, as with
`--enable-mixed-chunk`; without it SGLang stops decodes while prompts wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import LoadView

_LEAST_ALIGNMENT_TOKENS = 64
_MARGIN_TOKENS = 100
_LEAST_SHARE = 4
_NUM_SAMPLES = 128
_REACH_RATIO = 1.25


@dataclass(frozen=True, slots=True)
class PromptTime:
    """Seconds of a whole prompt of l tokens, a·l² + b·l, less what does not depend on l."""

    squared_s: float
    linear_s: float


def sampled_lengths(chunk_tokens: int) -> tuple[int, ...]:
    """The prompts that SGLang times before serving: up to 1.25 chunks, evenly, at most 128."""
    most = int(_REACH_RATIO * chunk_tokens)
    num = min(_NUM_SAMPLES, most)
    return tuple(sorted({most * (index + 1) // num for index in range(num)}))


def fit_prompt_time(lengths: Sequence[int], times_s: Sequence[float]) -> PromptTime:
    """The quadratic that fits best, by least squares.

    Raises:
        ValueError: fewer than three different lengths.
    """
    if len(set(lengths)) < 3:
        raise ValueError(f"prompt times: expected at least three lengths, got {lengths}")
    num = len(lengths)
    mean_l, mean_t = sum(lengths) / num, sum(times_s) / num
    mean_q = sum(length * length for length in lengths) / num
    ll = lq = qq = lt = qt = 0.0
    for length, time_s in zip(lengths, times_s, strict=True):
        linear, squared, time = length - mean_l, length * length - mean_q, time_s - mean_t
        ll += linear * linear
        lq += linear * squared
        qq += squared * squared
        lt += linear * time
        qt += squared * time
    determinant = ll * qq - lq * lq
    return PromptTime((ll * qt - lq * lt) / determinant, (qq * lt - lq * qt) / determinant)


@dataclass(frozen=True, slots=True)
class SglangDynamic:
    """Asked for every micro-batch; constants as released.

    Attributes:
        chunk_tokens: of every micro-batch that goes on with no prompt.
        prompt_time: fitted before serving; a fit that does not curve upwards turns the rule off.
        max_context_tokens: of one request.
        page_tokens: of one KV block; sizes are multiples of it, and of 64 at least.
        smooth_ratio: how far the chunk follows the rule; 1 follows all the way.
    """

    chunk_tokens: int
    prompt_time: PromptTime
    max_context_tokens: int
    page_tokens: int = 1
    smooth_ratio: float = 0.75

    def decide(self, view: LoadView) -> ChunkDecision:
        """Shrink for a prompt that goes on; where several do, for their mean history."""
        static = min(self.chunk_tokens, view.max_chunk_tokens)
        if view.started.tokens == 0 or self.prompt_time.squared_s <= 0.0:
            return ChunkDecision(static, Reason.STATIC_CHUNK)
        history = view.started.past_product / view.started.tokens
        size = self._next_piece(history, view.max_chunk_tokens)
        if size is None:
            return ChunkDecision(static, Reason.STATIC_CHUNK)
        return ChunkDecision(size, Reason.EQUAL_PIECE_TIME)

    def _next_piece(self, history_tokens: float, most_tokens: int) -> int | None:
        """The piece after so many tokens; None where no aligned one fits the context."""
        chunk, squared_s, linear_s = (
            self.chunk_tokens,
            self.prompt_time.squared_s,
            self.prompt_time.linear_s,
        )
        target_s = squared_s * chunk * chunk + linear_s * chunk
        slope_s = 2 * squared_s * history_tokens + linear_s
        discriminant = slope_s * slope_s + 4 * squared_s * target_s
        if target_s <= 0.0 or discriminant < 0.0:
            return None
        exact = (sqrt(discriminant) - slope_s) / (2 * squared_s)
        smoothed = int(chunk + self.smooth_ratio * (exact - chunk))
        unit = max(self.page_tokens, _LEAST_ALIGNMENT_TOKENS)
        aligned = max(unit, max(smoothed, chunk // _LEAST_SHARE) // unit * unit)
        room = int(self.max_context_tokens - history_tokens) - _MARGIN_TOKENS
        bounded = min(aligned, room, most_tokens) // unit * unit
        return bounded if bounded >= unit else None
