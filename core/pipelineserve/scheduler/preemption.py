"""Who yields its KV blocks when they run out, and what becomes of the KV in them."""

from collections.abc import Iterable

from pipelineserve.policy.preemption import (
    UNMEASURED,
    KvCosts,
    Preemption,
    PreemptionDecision,
    PreemptionPolicy,
    PreemptionView,
)
from pipelineserve.scheduler.kv import KvLedger
from pipelineserve.scheduler.requests import Request


class Preemptor:
    """Applies the policy to victims.

    Attributes:
        costs: what the policy weighs; the caller's latest measurement.
    """

    def __init__(self, policy: PreemptionPolicy) -> None:
        self._policy = policy
        self.costs: KvCosts = UNMEASURED

    def take_blocks(self, victim: Request, kv: KvLedger) -> PreemptionDecision:
        """Free the victim's blocks, its KV kept in host memory or dropped.

        Args:
            victim: in no micro-batch in flight; afterwards `num_issued` says what was kept.
            kv: holds its blocks.
        """
        decision = self._policy.decide(self._view(victim, kv))
        match decision.preemption:
            case Preemption.SWAP:
                kv.swap_out(victim)
            case Preemption.RECOMPUTE:
                kv.release(victim)
                victim.num_issued = 0
        return decision

    def _view(self, victim: Request, kv: KvLedger) -> PreemptionView:
        return PreemptionView(
            num_tokens=victim.num_issued - kv.num_shared_tokens(victim),
            num_blocks=kv.num_blocks_for(victim.num_issued),
            num_host_blocks_free=kv.host.num_free,
            costs=self.costs,
        )


def most_junior(requests: Iterable[Request]) -> Request:
    """The one that yields first: of the lowest priority, and of those the latest."""
    return max(requests, key=lambda request: request.seniority)
