"""Carries out delay scheduling: counts who may be held, asks the policy, moves requests."""

from pipelineserve.policy.holding import HoldEnd, HoldNothing, HoldPlan, HoldView
from pipelineserve.policy.rebalancing import HoldMemory, Rebalance
from pipelineserve.policy.views import DecodeLoad
from pipelineserve.scheduler.decodes import DecodePool
from pipelineserve.scheduler.requests import Request


class HoldKeeper:
    """Holds and releases the decodes of a pool by the policy in force.

    Attributes:
        policy: asked before every micro-batch; whoever sets another one calls `forget`.
    """

    def __init__(self, pool: DecodePool) -> None:
        self.policy: Rebalance | HoldNothing = HoldNothing()
        self._pool = pool
        self._memory = HoldMemory()

    def adopt(self, policy: Rebalance | HoldNothing) -> None:
        """Put another policy in force; its own memory begins anew."""
        self.policy = policy
        self._memory = HoldMemory()

    def apply(
        self, due: DecodeLoad, *, num_slots: int, prefill_tokens: int, kv_free_ratio: float,
        cycle_s: float, now_s: float,
    ) -> DecodeLoad:  # fmt: skip
        """Hold and release before one micro-batch takes its decodes.

        Args:
            due: decodes that it would take now, the first of the ready ones.
            num_slots: micro-batches that can be in flight at once.
            prefill_tokens: prompt tokens that could go with it, were there no budget.
            kv_free_ratio: share of KV blocks that could be taken now.
            cycle_s: time between two micro-batches of this slot, lately.
            now_s: the caller's time.

        Returns:
            The decodes that it takes instead, still the first of the ready ones.
        """
        self._pool.now_s = now_s
        is_idle = isinstance(self.policy, HoldNothing) and self._pool.held.num == 0
        if is_idle:
            return due
        holdable = [
            request
            for request in self._pool.first_ready(due.num)
            if self._may_be_held(request, cycle_s, now_s)
        ]
        overdue = [r for r in self._pool.each_held() if not self._may_stay(r, cycle_s, now_s)]
        plan = self._decide(
            HoldView(
                num_slots=num_slots,
                due=due,
                live=self._pool.live,
                held=self._pool.held,
                num_holdable=len(holdable),
                num_overdue=len(overdue),
                prefill_tokens=prefill_tokens,
                kv_free_ratio=kv_free_ratio,
            )
        )
        return self._carry_out(plan, due, holdable, overdue)

    def release_all(self) -> None:
        """Make everybody who is held ready."""
        self._pool.release(list(self._pool.each_held()))

    def _decide(self, view: HoldView) -> HoldPlan:
        match self.policy:
            case HoldNothing():
                return self.policy.decide(view)
            case Rebalance():
                plan, self._memory = self.policy.decide(self._memory, view)
                return plan

    def _carry_out(
        self, plan: HoldPlan, due: DecodeLoad, holdable: list[Request], overdue: list[Request]
    ) -> DecodeLoad:
        others = [request for request in self._pool.each_held() if request not in overdue]
        released = [*overdue, *others][: plan.num_release]
        is_newest = plan.end is HoldEnd.NEWEST
        by_arrival = sorted(
            holdable, key=lambda r: (r.arrival_s, r.submit_index), reverse=is_newest
        )
        held = by_arrival[: plan.num_hold]
        for request in held:
            self._pool.hold(request)
        self._pool.release(released)
        change = _context_of(released) - _context_of(held)
        num = due.num + len(released) - len(held)
        return DecodeLoad(num, max(0, due.context_tokens + change))

    def _may_be_held(self, request: Request, cycle_s: float, now_s: float) -> bool:
        """Whether there is room for one more cycle, and it had a token since it was released."""
        had_token = len(request.token_ids) > request.num_tokens_at_release
        return had_token and self._may_stay(request, cycle_s, now_s)

    def _may_stay(self, request: Request, cycle_s: float, now_s: float) -> bool:
        """Whether being held for one more cycle breaks neither the largest gap nor the budget."""
        if isinstance(self.policy, HoldNothing):
            return False
        gap_s = now_s - (now_s if request.last_token_s is None else request.last_token_s)
        held_s = request.held_for_s(now_s)
        return (
            gap_s + cycle_s <= self.policy.max_gap_s
            and held_s + cycle_s <= self.policy.hold_budget_s
        )


def _context_of(requests: list[Request]) -> int:
    return sum(len(request.token_ids) for request in requests)
