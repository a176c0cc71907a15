"""Chunk policies: the token budget of one micro-batch, decodes included."""

from dataclasses import dataclass
from typing import Protocol

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import LoadView, SchedulerView


@dataclass(frozen=True, slots=True)
class ChunkDecision:
    """`chunk_tokens` ≥ 1 tokens for exactly the micro-batch that the view was made for."""

    chunk_tokens: int
    reason: Reason


class ChunkPolicy(Protocol):
    """Maps one view to the budget of one micro-batch."""

    def decide(self, view: LoadView) -> ChunkDecision:
        """Choose the budget; never above `view.max_chunk_tokens`."""
        ...


@dataclass(frozen=True, slots=True)
class Static:
    """The same budget for every micro-batch, for a reason that was found elsewhere."""

    chunk_tokens: int
    reason: Reason = Reason.STATIC_CHUNK

    def decide(self, view: SchedulerView) -> ChunkDecision:
        """Return the fixed budget, or the ceiling where the ceiling is lower."""
        if self.chunk_tokens > view.max_chunk_tokens:
            return ChunkDecision(view.max_chunk_tokens, Reason.CHUNK_CEILING)
        return ChunkDecision(self.chunk_tokens, self.reason)
