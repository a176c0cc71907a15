"""The predictive chunk policy: the smallest chunk that serves the demand within the TPOT target.

FastPP's law (OSDI 2026, section 4.2) made robust: it is asked for each micro-batch instead of once
in two cycles, the demand is the queue of this very moment, and what is predicted is exactly the
micro-batch being composed, with its own decodes and prompts, instead of the mean of all slots.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import StepTimeModel, attention_of, decodes_s
from pipelineserve.policy.views import LoadView

_PROMISED_RATIO = 0.95


DEFAULT_ARRIVAL_WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class Predictive:
    """Chooses by prediction and demand.

    A step may last until the slots' cycle reaches the TPOT target: slots · T + cycle overhead ≤
    target. The demand in tokens per second is the larger of the backlog ÷ horizon and the arrival
    rate; a chunk serves its prefill tokens ÷ (T + step overhead).

    Attributes:
        model: predicts a step's time on the slowest stage.
        candidates: chunk sizes to choose from, ascending, at least one.
        tpot_target_s: None means that steps may last as long as they like.
        horizon_s: time in which the backlog of prompts should be prefilled; a fifth of the TTFT
            target is a good choice.
        arrival_window_s: the window over which the scheduler counts arrivals for this policy.
        num_spreads: standard deviations of the prediction's error that are added to it. Few: TPOT
            is a mean over dozens of steps, whose errors cancel.
        step_overhead_s: time per micro-batch in which the slowest stage does nothing.
        cycle_overhead_s: time per cycle in which a slot is in no stage's hands.
        least_kv_free_ratio: below this share of free KV, prompts get as little as possible.
        least_prefill_tokens: what prompts get even if no chunk is fast enough.

    Raises:
        ValueError: candidates do not ascend, or a duration is not above 0.
    """

    model: StepTimeModel
    candidates: tuple[int, ...]
    tpot_target_s: float | None
    horizon_s: float = 0.4
    arrival_window_s: float = DEFAULT_ARRIVAL_WINDOW_S
    num_spreads: float = 0.25
    step_overhead_s: float = 0.0
    cycle_overhead_s: float = 0.0
    least_kv_free_ratio: float = 0.1
    least_prefill_tokens: int = 8

    # The table's time of each candidate: it is asked for every micro-batch and never changes.
    _times_s: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = self.candidates
        if not sizes or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)):
            raise ValueError(f"candidates: expected ascending sizes of at least 1, got {sizes}")
        if not (self.horizon_s > 0.0 and self.arrival_window_s > 0.0):
            raise ValueError(
                f"horizon_s and arrival_window_s: expected above 0, got {self.horizon_s} "
                f"and {self.arrival_window_s}"
            )
        times_s = tuple(map(self.model.table.at, self.candidates))
        object.__setattr__(self, "_times_s", times_s)

    def decide(self, view: LoadView) -> ChunkDecision:
        """Choose the budget: never below the assigned decodes but for the ceiling."""
        least = view.assigned.num + min(self.least_prefill_tokens, view.prefill_tokens)
        first = bisect_left(self.candidates, least)
        end = bisect_right(self.candidates, view.max_chunk_tokens)
        if first == len(self.candidates):
            return ChunkDecision(min(least, view.max_chunk_tokens), Reason.DECODES_FILL_CHUNK)
        if first >= end:
            return ChunkDecision(view.max_chunk_tokens, Reason.CHUNK_CEILING)
        if view.prefill_tokens == 0:
            return ChunkDecision(self.candidates[first], Reason.NO_PROMPT_WAITS)
        if view.kv_free_ratio < self.least_kv_free_ratio:
            return ChunkDecision(self.candidates[first], Reason.KV_PRESSURE)
        return self._choose(view, first, end)

    def required_tokens_per_s(self, view: LoadView) -> float:
        """Prefill tokens per second that the queue of this moment asks for."""
        arriving = view.arrived_tokens / view.arrival_window_s
        return max(view.prefill_tokens / self.horizon_s, arriving)

    def promised_tokens_per_s(self, view: LoadView) -> float:
        """Prefill tokens per second that the best safe chunk serves when prompts fill it; above 0.

        For `Triage`. Attention among prompts is left out; what is promised is a little less than
        what comes out, to cover that.
        """
        fitted, decodes = self.model.coefficients, view.assigned
        beyond_table_s = decodes_s(decodes, fitted)
        factor = self.model.feedback_ratio * (1.0 + self.num_spreads * self.model.spread_ratio)
        limit_s = self.step_limit_s(view.num_slots)
        best = 0.0
        for size, table_s in zip(self.candidates, self._times_s, strict=True):
            time_s = factor * (fitted.table_ratio * table_s + beyond_table_s)
            if best > 0.0 and time_s > limit_s:
                break
            best = max(best, (size - decodes.num) / (time_s + self.step_overhead_s))
        # Decodes fill every chunk: prompts still get their least with each.
        least = self.least_prefill_tokens / (time_s + self.step_overhead_s)
        return _PROMISED_RATIO * max(best, least)

    def step_limit_s(self, num_slots: int) -> float:
        """The longest that one step may take; infinite without a target."""
        if self.tpot_target_s is None:
            return inf
        return max(0.0, self.tpot_target_s - self.cycle_overhead_s) / num_slots

    def _choose(self, view: LoadView, first: int, end: int) -> ChunkDecision:
        """The smallest feasible candidate, else the largest safe one, else the smallest.

        Time never falls as the chunk grows. So a chunk that prefills fewer tokens than the demand
        asks for in the time of a *smaller* chunk cannot be feasible and is passed over unpredicted,
        and the largest safe one is found by bisection.
        """
        candidates, decodes, most_prefill = self.candidates, view.assigned.num, view.prefill_tokens
        step_time_s = self._pricing(view)
        required = self.required_tokens_per_s(view)
        limit_s = self.step_limit_s(view.num_slots)
        index = first
        while index < end:
            time_s = step_time_s(index)
            if time_s > limit_s:
                break
            needed_tokens = required * (time_s + self.step_overhead_s)
            prefill = candidates[index] - decodes
            if prefill >= needed_tokens:
                return ChunkDecision(candidates[index], Reason.DEMAND_MET)
            if prefill >= most_prefill:
                return ChunkDecision(candidates[index], Reason.BACKLOG_FITS)
            wanted = decodes + min(needed_tokens, most_prefill)
            index = max(index + 1, bisect_left(candidates, wanted, index, end))
        num_safe = bisect_right(range(first, end), limit_s, key=step_time_s)
        if num_safe == 0:
            return ChunkDecision(candidates[first], Reason.NO_CHUNK_IS_SAFE)
        return ChunkDecision(candidates[first + num_safe - 1], Reason.LARGEST_SAFE_CHUNK)

    def _pricing(self, view: LoadView) -> Callable[[int], float]:
        """Seconds of this micro-batch by the index of its chunk size, with the spread on top."""
        model, candidates, times_s = self.model, self.candidates, self._times_s
        attention_s = attention_of(view, model.coefficients)
        factor = model.feedback_ratio * (1.0 + self.num_spreads * model.spread_ratio)
        table_ratio = model.coefficients.table_ratio
        decodes, most_prefill = view.assigned.num, view.prefill_tokens

        def step_time_s(index: int) -> float:
            prefill = candidates[index] - decodes
            if prefill <= most_prefill:
                return factor * (table_ratio * times_s[index] + attention_s(prefill))
            table_s = table_ratio * model.table.at(decodes + most_prefill)
            return factor * (table_s + attention_s(most_prefill))

        return step_time_s
