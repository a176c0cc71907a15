"""Delay scheduling by cost: decodes are held where that makes the pipeline faster, within bounds.

FastPP holds what is above a multiple of 128 requests per slot, for as long as it likes. Here a
boundary is one that was measured, holding starts only if the predicted throughput of decodes
rises by it, contexts count as well as numbers, and no request is held beyond its gap and budget.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import Enum

from pipelineserve.policy.holding import HoldEnd, HoldPlan, HoldView
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import StepTimeModel, decode_features


class HoldMode(Enum):
    """Whose sake decodes are held for.

    TPOT_FIRST holds the oldest, which have the most tokens to spread a gap over; E2E_FIRST the
    newest, which lets the oldest finish.
    """

    TPOT_FIRST = "tpot_first"
    E2E_FIRST = "e2e_first"

    @property
    def end(self) -> HoldEnd:
        """The end of the pool that yields."""
        return HoldEnd.OLDEST if self is HoldMode.TPOT_FIRST else HoldEnd.NEWEST


@dataclass(frozen=True, slots=True)
class HoldMemory:
    """What is kept between two plans, so that none undoes the one before.

    Attributes:
        boundary_tokens: the boundary that decodes are held below, if they are.
        is_pressed: whether KV is short.
    """

    boundary_tokens: int | None = None
    is_pressed: bool = False


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Asked before every micro-batch.

    Attributes:
        mode: which decodes are held.
        model: predicts a step's time on the slowest stage.
        boundaries: token counts after which a step's time jumps, ascending.
        max_gap_s: the longest gap between two tokens of a request that holding may cause; the
            scheduler counts `num_holdable` and `num_overdue` by it.
        hold_budget_s: the longest that a request may be held in all; the scheduler likewise.
        least_gain_ratio: holding at a boundary starts if throughput rises by at least this, and
            ends when nothing is gained any more.
        tolerance_ratio: a slot whose decodes cost this much more than the mean is uneven.
        least_kv_free_ratio: KV pressure begins below this share of free KV.
        relaxed_kv_free_ratio: and ends at this one.
    """

    mode: HoldMode
    model: StepTimeModel
    boundaries: tuple[int, ...]
    max_gap_s: float = 2.0
    hold_budget_s: float = 10.0
    least_gain_ratio: float = 0.05
    tolerance_ratio: float = 0.1
    least_kv_free_ratio: float = 0.10
    relaxed_kv_free_ratio: float = 0.15

    def may_stay_held(self, *, gap_s: float, held_s: float, cycle_s: float) -> bool:
        """Whether one more cycle of being held breaks neither the largest gap nor the budget.

        Args:
            gap_s: time since the request's last token.
            held_s: time in which it was held so far.
            cycle_s: time between two micro-batches of its slot.
        """
        return gap_s + cycle_s <= self.max_gap_s and held_s + cycle_s <= self.hold_budget_s

    def decide(self, memory: HoldMemory, view: HoldView) -> tuple[HoldPlan, HoldMemory]:
        """Plan for one micro-batch."""
        if self._is_pressed(memory, view):
            plan = HoldPlan(0, view.held.num, self.mode.end, Reason.KV_PRESSURE)
            return plan, HoldMemory(is_pressed=True)
        boundary = self._boundary(memory, view)
        memory = HoldMemory(boundary_tokens=boundary)
        if boundary is not None:
            return self._towards(boundary, boundary, view, Reason.ABOVE_BOUNDARY), memory
        least, most = self._even_range(view)
        return self._towards(least, most, view, Reason.SLOTS_UNEVEN), memory

    def _towards(self, least: int, most: int, view: HoldView, reason: Reason) -> HoldPlan:
        """Fill this micro-batch up to `least` decodes, or keep it down to `most`."""
        num_release = min(view.held.num, max(view.num_overdue, least - view.due.num))
        if view.prefill_tokens > 0 and reason is Reason.ABOVE_BOUNDARY:
            # Its prompts cross the boundary anyway: holding more would only cost.
            num_hold, reason = 0, Reason.PROMPTS_CROSS_BOUNDARY
        else:
            num_hold = min(view.num_holdable, max(0, view.due.num + num_release - most))
        if num_hold == num_release == 0 and reason is Reason.SLOTS_UNEVEN:
            reason = Reason.SLOTS_EVEN
        return HoldPlan(num_hold, num_release, self.mode.end, reason)

    def _is_pressed(self, memory: HoldMemory, view: HoldView) -> bool:
        least = self.relaxed_kv_free_ratio if memory.is_pressed else self.least_kv_free_ratio
        return view.kv_free_ratio < least

    def _boundary(self, memory: HoldMemory, view: HoldView) -> int | None:
        """The boundary to hold at: the largest below an even share, if it pays."""
        share = _ceil_div(view.live.num + view.held.num, view.num_slots)
        index = bisect_left(self.boundaries, share)
        if index == 0:
            return None
        boundary = self.boundaries[index - 1]
        context = _mean_context(view)
        held_rate = boundary / self._step_s(boundary, context)
        gain_ratio = held_rate * self._step_s(share, context) / share - 1.0
        least = 0.0 if memory.boundary_tokens == boundary else self.least_gain_ratio
        return boundary if gain_ratio > least else None

    def _even_range(self, view: HoldView) -> tuple[int, int]:
        """The fewest and the most decodes that leave this slot no dearer than the mean one.

        A slot that is not dearer takes at least one of those held, or the last of them would wait
        for their gap to run out where shares do not divide evenly.
        """
        share = _ceil_div(view.live.num + view.held.num, view.num_slots)
        if view.due.num == 0:
            return share, share
        context = view.due.context_tokens / view.due.num
        mean_s = self._step_s(max(1, share), _mean_context(view))
        if self._step_s(view.due.num, context) <= mean_s * (1.0 + self.tolerance_ratio):
            least = max(share, view.due.num + 1)
            return least, least
        cheaper = range(1, view.due.num)
        most = bisect_right(cheaper, mean_s, key=lambda num: self._step_s(num, context))
        return min(share, most), max(1, most)

    def _step_s(self, decodes: int, context_tokens: float) -> float:
        """Seconds of a step with so many decodes of that mean context."""
        return self.model.predict_s(decodes, decode_features(decodes, decodes * context_tokens))


def _mean_context(view: HoldView) -> float:
    num = view.live.num + view.held.num
    total = view.live.context_tokens + view.held.context_tokens
    return total / num if num else 0.0


def _ceil_div(number: int, divisor: int) -> int:
    return -(-number // divisor)
