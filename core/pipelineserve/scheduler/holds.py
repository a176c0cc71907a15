"""Carries out delay scheduling: counts who may be held, asks the policy, moves requests."""

from typing import Protocol

from pipelineserve.policy.holding import HoldEnd, HoldNothing, HoldPlan, HoldView
from pipelineserve.policy.rebalancing import HoldMemory, Rebalance
from pipelineserve.policy.views import DecodeLoad, SchedulerView
from pipelineserve.scheduler.decodes import DecodePool
from pipelineserve.scheduler.requests import Request


class Holder(Protocol):
    """Whoever holds decodes back for a scheduler."""

    def adopt(self, policy: Rebalance | HoldNothing) -> None:
        """A controller asks for another policy."""
        ...

    def apply(
        self, due: DecodeLoad, view: SchedulerView, *, prefill_tokens: int, cycle_s: float
    ) -> DecodeLoad:
        """Hold and release before one micro-batch takes its decodes.

        Args:
            due: decodes that it would take now, the first of the ready ones.
            view: the slot to be filled, and how things stand.
            prefill_tokens: prompt tokens that could go with it, were there no budget.
            cycle_s: time between two micro-batches of this slot, lately.

        Returns:
            The decodes that it takes instead, still the first of the ready ones.
        """
        ...

    def release_all(self) -> None:
        """Make everybody who is held ready."""
        ...


class HoldPlanner:
    """The policy in force, and what it keeps between two plans.

    Attributes:
        policy: asked before every micro-batch.
    """

    def __init__(self) -> None:
        self.policy: Rebalance | HoldNothing = HoldNothing()
        self._memory = HoldMemory()

    def adopt(self, policy: Rebalance | HoldNothing) -> None:
        """Put another policy in force; the memory stays while decodes may be held.

        A controller sends a model that has learned a little more several times a second.
        """
        if isinstance(policy, HoldNothing):
            self._memory = HoldMemory()
        self.policy = policy

    def decide(self, view: HoldView) -> HoldPlan:
        """The plan for one micro-batch."""
        match self.policy:
            case HoldNothing():
                return self.policy.decide(view)
            case Rebalance():
                plan, self._memory = self.policy.decide(self._memory, view)
                return plan

    def may_stay_held(self, *, gap_s: float, held_s: float, cycle_s: float) -> bool:
        """See `Rebalance.may_stay_held`; nobody stays held where nothing is to be."""
        if isinstance(self.policy, HoldNothing):
            return False
        return self.policy.may_stay_held(gap_s=gap_s, held_s=held_s, cycle_s=cycle_s)


class HoldKeeper:
    """Holds and releases the decodes of a pool by the policy in force."""

    def __init__(self, pool: DecodePool) -> None:
        self._planner = HoldPlanner()
        self._pool = pool

    @property
    def policy(self) -> Rebalance | HoldNothing:
        """Asked before every micro-batch."""
        return self._planner.policy

    def adopt(self, policy: Rebalance | HoldNothing) -> None:
        """See `HoldPlanner.adopt`."""
        self._planner.adopt(policy)

    def apply(
        self, due: DecodeLoad, view: SchedulerView, *, prefill_tokens: int, cycle_s: float
    ) -> DecodeLoad:
        """See `Holder.apply`."""
        now_s = view.now_s
        self._pool.now_s = now_s
        if isinstance(self.policy, HoldNothing) and not self._pool.has_held:
            return due
        holdable = [
            request
            for request in self._pool.first_ready(due.num)
            if self._may_be_held(request, cycle_s, now_s)
        ]
        overdue: list[Request] = []
        others: list[Request] = []
        for request in self._pool.each_held():
            may_stay = self._may_stay(request, cycle_s, now_s)
            (others if may_stay else overdue).append(request)
        plan = self._planner.decide(
            HoldView(
                num_slots=view.num_slots,
                due=due,
                live=self._pool.live,
                held=self._pool.held,
                num_holdable=len(holdable),
                num_overdue=len(overdue),
                prefill_tokens=prefill_tokens,
                kv_free_ratio=view.kv_free_ratio,
            )
        )
        return carry_out(self._pool, plan, due, holdable, [*overdue, *others])

    def release_all(self) -> None:
        """Make everybody who is held ready."""
        self._pool.release(list(self._pool.each_held()))

    def _may_be_held(self, request: Request, cycle_s: float, now_s: float) -> bool:
        """Whether there is room for one more cycle, and it had a token since it was released."""
        had_token = len(request.token_ids) > request.num_tokens_at_release
        return had_token and self._may_stay(request, cycle_s, now_s)

    def _may_stay(self, request: Request, cycle_s: float, now_s: float) -> bool:
        """Whether being held for one more cycle breaks neither the largest gap nor the budget."""
        last_token_s = now_s if request.last_token_s is None else request.last_token_s
        return self._planner.may_stay_held(
            gap_s=now_s - last_token_s, held_s=request.held_for_s(now_s), cycle_s=cycle_s
        )


def carry_out(
    pool: DecodePool,
    plan: HoldPlan,
    due: DecodeLoad,
    holdable: list[Request],
    held_so_far: list[Request],
) -> DecodeLoad:
    """Move requests of a pool as planned; of those held so far the first are released first.

    Returns:
        The decodes that are due afterwards.
    """
    released = held_so_far[: plan.num_release]
    is_newest = plan.end is HoldEnd.NEWEST
    by_arrival = sorted(holdable, key=lambda r: (r.arrival_s, r.submit_index), reverse=is_newest)
    held = by_arrival[: plan.num_hold]
    for request in held:
        pool.hold(request)
    pool.release(released)
    change = _context_of(released) - _context_of(held)
    num = due.num + len(released) - len(held)
    return DecodeLoad(num, max(0, due.context_tokens + change))


def _context_of(requests: list[Request]) -> int:
    return sum(len(request.token_ids) for request in requests)
