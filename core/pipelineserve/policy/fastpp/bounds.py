"""What both of FastPP's chunk controllers do under KV pressure and against starving prefill."""

from collections.abc import Sequence
from enum import Enum

from pipelineserve.policy.fastpp.views import FastppView

UNIT_TOKENS = 128


class KvFallback(Enum):
    """The chunk under KV pressure."""

    SMALLEST_SLOT = "smallest_slot"
    """Released code: above the requests of the slot that has the fewest, plus half a unit."""
    ABOVE_RUNNING = "above_running"
    """Paper: the smallest multiple above the requests of the slot that has the most."""


def kv_fallback_tokens(fallback: KvFallback, num_running: Sequence[int], unit_tokens: int) -> int:
    """The chunk under KV pressure, from the requests of each slot."""
    match fallback:
        case KvFallback.SMALLEST_SLOT:
            return above(min(num_running) + unit_tokens // 2, unit_tokens)
        case KvFallback.ABOVE_RUNNING:
            return above(max(num_running), unit_tokens)


def kv_free_ratio(view: FastppView, num_running: Sequence[int]) -> float:
    """Share of KV that is free after one more token for everybody."""
    return (view.kv_free_tokens - sum(num_running)) / view.kv_pool_tokens


def is_short_of_kv(view: FastppView, num_running: Sequence[int], least_free_ratio: float) -> bool:
    """Whether the KV that is free after one more token for everybody is below the watermark."""
    return kv_free_ratio(view, num_running) < least_free_ratio


def guarded(
    chunk_tokens: int, num_running: Sequence[int], view: FastppView, unit_tokens: int
) -> int:
    """The safety guard: where the chunk holds no more than a slot's requests, one unit above.

    It may exceed the policy's largest chunk, never the engine's buffers.
    """
    if any(0 < slot.num_requests >= chunk_tokens for slot in view.slots):
        chunk_tokens = above(max(num_running), unit_tokens)
    return min(chunk_tokens, view.max_chunk_tokens)


def above(num_requests: int, unit_tokens: int) -> int:
    """The smallest multiple of the unit above a number of requests."""
    return (num_requests // unit_tokens + 1) * unit_tokens
