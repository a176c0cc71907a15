"""Chunk sizes in effect: what the user gave, and the rest derived so that nothing contradicts."""

from dataclasses import dataclass

from pipelineserve.api.targets import ChunkingPolicy, ChunkingSpec
from pipelineserve.units import Tokens

# Sizes that suit a GPU; its kernels work in tiles of 128 tokens.
DEFAULT_MIN_TOKENS = 128
DEFAULT_MAX_TOKENS = 2048
DEFAULT_STEP_TOKENS = 128
DEFAULT_STATIC_TOKENS = 512
# A prediction looks at every candidate for every micro-batch.
_MOST_DERIVED_STEPS = 64


@dataclass(frozen=True, slots=True)
class EffectiveChunking:
    """Chunk sizes of one resource, in tokens of a micro-batch, decodes included.

    1 <= min <= static <= max <= ceiling, and 1 <= step <= max.

    Attributes:
        ceiling_tokens: what the engine makes its buffers for when it starts.
    """

    policy: ChunkingPolicy
    min_tokens: Tokens
    max_tokens: Tokens
    step_tokens: Tokens
    static_tokens: Tokens
    ceiling_tokens: Tokens


def effective_chunking(chunking: ChunkingSpec, ceiling_tokens: int | None) -> EffectiveChunking:
    """The sizes in effect; `ceiling_tokens` is spec.engine.maxChunkTokens.

    What was given is kept. The sizes given must not contradict each other (`rules.py`).
    """
    largest_given = max(_given(chunking), default=0)
    if ceiling_tokens is None:
        ceiling_tokens = max(DEFAULT_MAX_TOKENS, largest_given)
    most = chunking.max_tokens or min(ceiling_tokens, max(DEFAULT_MAX_TOKENS, largest_given))
    least = chunking.min_tokens or min(DEFAULT_MIN_TOKENS, chunking.static_tokens or most, most)
    static = chunking.static_tokens or min(max(DEFAULT_STATIC_TOKENS, least), most)
    return EffectiveChunking(
        policy=chunking.policy,
        min_tokens=Tokens(least),
        max_tokens=Tokens(most),
        step_tokens=Tokens(chunking.step_tokens or _derived_step(least, most)),
        static_tokens=Tokens(static),
        ceiling_tokens=Tokens(ceiling_tokens),
    )


def _given(chunking: ChunkingSpec) -> list[int]:
    sizes = (
        chunking.min_tokens,
        chunking.static_tokens,
        chunking.max_tokens,
        chunking.step_tokens,
    )
    return [size for size in sizes if size is not None]


def _derived_step(least: int, most: int) -> int:
    """The default step, or the smallest chunk if that is less, with a bounded number of steps."""
    span = most - least
    finest = -(-span // _MOST_DERIVED_STEPS)
    return max(1, min(span, max(finest, min(DEFAULT_STEP_TOKENS, least))))
