"""gLLM's token throttling: prompts get a share of what waits, less the fuller the KV pool is.

Guo et al., "gLLM: Global Balanced Pipeline Parallelism Systems for Distributed LLMs Serving with
Token Throttling" (SC 2025). It evens out prefill over time and decodes over slots and knows no
targets. Its decodes are `OnePool`'s: running ones ÷ stages, rounded up.
"""

from dataclasses import dataclass

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import LoadView


@dataclass(frozen=True, slots=True)
class GllmThrottling:
    """Asked for every micro-batch; constants as published.

    Attributes:
        kv_pool_tokens: tokens for which there could be KV.
        most_prefill_tokens: prefill of one micro-batch while the pool is empty.
        least_prefill_tokens: prefill of one micro-batch while several prompts wait, if KV allows.
        num_shares: micro-batches over which the waiting prompts are spread.
        reserve_ratio: share of KV that is left to decodes.
    """

    kv_pool_tokens: int
    most_prefill_tokens: int = 2048
    least_prefill_tokens: int = 32
    num_shares: int = 8
    reserve_ratio: float = 0.05

    def decide(self, view: LoadView) -> ChunkDecision:
        """Add the prefill that is allowed to the assigned decodes; at least 1 token."""
        prefill_tokens, reason = self._prefill(view)
        wanted = max(1, view.assigned.num + prefill_tokens)
        if wanted > view.max_chunk_tokens:
            return ChunkDecision(view.max_chunk_tokens, Reason.CHUNK_CEILING)
        return ChunkDecision(wanted, reason)

    def _prefill(self, view: LoadView) -> tuple[int, Reason]:
        if view.prefill_tokens == 0:
            return 0, Reason.NO_PROMPT_WAITS
        above_reserve = view.kv_free_ratio - self.reserve_ratio
        by_ratio = round(
            max(0.0, above_reserve / (1 - self.reserve_ratio)) * self.most_prefill_tokens
        )
        by_kv = min(by_ratio, int(view.kv_free_ratio * self.kv_pool_tokens))
        if view.started.num + view.waiting.num < 2:
            return by_kv, Reason.KV_SHARE
        by_backlog = max(view.prefill_tokens // self.num_shares, self.least_prefill_tokens)
        if by_backlog < by_kv:
            return by_backlog, Reason.BACKLOG_SHARE
        return by_kv, Reason.KV_SHARE
