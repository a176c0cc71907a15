"""Counts that only rise; with the live requests they make the census."""

from collections import Counter
from dataclasses import dataclass, field

from pipelineserve.policy.preemption import Preemption, PreemptionDecision
from pipelineserve.scheduler.requests import FinishReason


@dataclass(slots=True)
class Tally:
    """Requests by how they came in and went out, and tokens by where they came from."""

    arrived: int = 0
    rejected: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    recalls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemption_decisions: Counter[PreemptionDecision] = field(default_factory=Counter)

    @property
    def preemptions(self) -> int:
        """Requests sent back to the queue for want of KV blocks, however."""
        return self.preemption_decisions.total()

    @property
    def swaps(self) -> int:
        """Those of them whose KV was kept in host memory."""
        return sum(
            number
            for decision, number in self.preemption_decisions.items()
            if decision.preemption is Preemption.SWAP
        )

    def count_end(self, finish: FinishReason) -> None:
        """Count a request that ended."""
        match finish:
            case FinishReason.STOP | FinishReason.LENGTH:
                self.finished += 1
            case FinishReason.CANCELLED:
                self.cancelled += 1
            case FinishReason.ERROR:
                self.failed += 1
