"""Carries out FastPP's delay scheduling: one global set of held decodes, without any bound."""

from collections.abc import Callable

from pipelineserve.policy.fastpp.delay import FastppDelay, FastppDelayView
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.rebalancing import Rebalance
from pipelineserve.policy.views import DecodeLoad, SchedulerView
from pipelineserve.scheduler.decodes import DecodePool
from pipelineserve.scheduler.holds import carry_out


class FastppHolds:
    """Holds decodes of the slot that is being filled, or takes held ones of any slot into it.

    Args:
        pool: of decodes, each bound to its slot.
        policy: asked before every micro-batch.
        seen: gives what the policy decides on.
    """

    def __init__(
        self,
        pool: DecodePool,
        policy: FastppDelay,
        seen: Callable[[SchedulerView], FastppDelayView],
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._seen = seen

    def adopt(self, policy: Rebalance | HoldNothing) -> None:
        """Nothing changes: this policy is chosen with the scheduler, and no controller sends it."""

    def apply(
        self, due: DecodeLoad, view: SchedulerView, *, prefill_tokens: int, cycle_s: float
    ) -> DecodeLoad:
        """See `Holder.apply`."""
        del prefill_tokens, cycle_s
        self._pool.now_s = view.now_s
        plan = self._policy.decide(self._seen(view))
        ready = self._pool.first_ready(due.num)
        return carry_out(self._pool, plan, due, ready, list(self._pool.each_held()))

    def release_all(self) -> None:
        """See `Holder.release_all`."""
        self._pool.release(list(self._pool.each_held()))
