"""capacity@P90: the highest arrival rate at which the percentiles meet their bounds, by bisection.

A rate passes if at least half of the seeds pass, so the capacity is the median of what the seeds
can bear. A mean of P90 over seeds would be decided by the one seed that broke down, whose latencies
have no bound. Each seed keeps its chance at every rate, so that rates differ by the rate alone.

Bisection assumes that a rate passes if a higher one does. It cannot see by itself that this fails,
so rates around the result are probed as well, and every contradiction is reported.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import combinations, product
from typing import Protocol

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_simulator.measures.criteria import Criterion, percentile_s
from pipelineserve_simulator.measures.figures import steady_window_of, whole_window
from pipelineserve_simulator.measures.intervals import MedianInterval, median_interval
from pipelineserve_simulator.measures.runs import RunOutcome

Run = Callable[[float, int], RunOutcome]
Point = tuple[float, int]  # rate per second, seed


Judge = Callable[[Sequence[Point]], Iterable[tuple[float, ...]]]
"""The criteria's percentiles at each of these points, in their order."""


class PointMap(Protocol):
    """`map`, or the `map` of a pool of processes; results in the order of the points."""

    def __call__(
        self, judge: Callable[[Point], tuple[float, ...]], points: Sequence[Point], /
    ) -> Iterable[tuple[float, ...]]:
        """Apply `judge` to every point."""
        ...


@dataclass(frozen=True, slots=True)
class CapacitySearch:
    """How to search.

    Attributes:
        low_per_s, high_per_s: bounds of the rate.
        tolerance_ratio: the result and a rate that fails are this close.
        probe_ratios: rates that are tried besides, as factors on the result.
        is_steady: judge the steady window instead of the whole run.
    """

    low_per_s: float
    high_per_s: float
    tolerance_ratio: float = 0.01
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    probe_ratios: tuple[float, ...] = (0.6, 0.8, 0.9, 1.1, 1.25)
    is_steady: bool = False

    def __post_init__(self) -> None:
        """Refuse what no search can be made of.

        Raises:
            InvalidInputError: all that is wrong with it.
        """
        conditions = {
            "low_per_s": (0 < self.low_per_s < self.high_per_s, "above 0 and below high_per_s"),
            "tolerance_ratio": (0 < self.tolerance_ratio < 1, "between 0 and 1"),
            "seeds": (len(set(self.seeds)) == len(self.seeds) > 0, "one or more, all different"),
            "probe_ratios": (all(ratio > 0 for ratio in self.probe_ratios), "all above 0"),
        }
        faults = [
            Fault(name, f"got {getattr(self, name)}, expected {expected}")
            for name, (is_met, expected) in conditions.items()
            if not is_met
        ]
        if faults:
            raise InvalidInputError("the search for a capacity", faults)


class Bound(Enum):
    """What the search came upon."""

    FOUND = "between two rates within the tolerance"
    BELOW = "even the lowest rate fails"
    ABOVE = "even the highest rate passes"


@dataclass(frozen=True, slots=True)
class RateVerdict:
    """One rate, judged.

    Attributes:
        percentiles_s: per seed, one per criterion.
        passes: per seed.
    """

    rate_per_s: float
    percentiles_s: tuple[tuple[float, ...], ...]
    passes: tuple[bool, ...]
    is_passed: bool


@dataclass(frozen=True, slots=True)
class Capacity:
    """The result.

    Attributes:
        capacity_per_s: the highest rate found to pass; 0 if `bound` is BELOW, and only a lower
            bound of it if ABOVE.
        thresholds_per_s: per seed, the highest rate that it bears, searched by itself; 0 or
            infinity beyond the bounds of the search.
        interval: of the true median of these thresholds, from the seeds' order statistics.
        verdicts: every rate at which all seeds were judged, in ascending order.
        contradictions: pairs of rates of which the lower fails and the higher passes.
        num_contradicting_seeds: seeds that by themselves fail at a rate below one they pass.
    """

    search: CapacitySearch
    criteria: tuple[Criterion, ...]
    bound: Bound
    capacity_per_s: float
    thresholds_per_s: tuple[float, ...]
    interval: MedianInterval
    verdicts: tuple[RateVerdict, ...]
    contradictions: tuple[tuple[float, float], ...]
    num_contradicting_seeds: int

    @property
    def is_monotone(self) -> bool:
        """Whether nothing contradicts the assumption that the search rests on."""
        return not self.contradictions and self.num_contradicting_seeds == 0


def find_capacity(
    run: Run, criteria: Sequence[Criterion], search: CapacitySearch, run_all: PointMap = map
) -> Capacity:
    """Search for the capacity; every (rate, seed) is run at most once.

    `run` is a pure function of rate and seed, picklable if `run_all` is that of a pool of
    processes. capacity@P90 has the criteria of `p90_criteria`.
    """
    judge = partial(judge_run, run, criteria, search.is_steady)
    return search_capacity(partial(run_all, judge), criteria, search)


def search_capacity(
    judge: Judge, criteria: Sequence[Criterion], search: CapacitySearch
) -> Capacity:
    """The same with the percentiles from anywhere, such as results that were kept.

    Args:
        judge: asked for each (rate, seed) at most once; what it raises ends the search.
        criteria: what the percentiles are of, in their order.
        search: how to search.
    """
    return _Search(judge, tuple(criteria), search).result()


def judge_run(
    run: Run, criteria: Sequence[Criterion], is_steady: bool, point: Point
) -> tuple[float, ...]:
    """The criteria's percentiles of one run, in seconds; only these few numbers leave a process."""
    outcome = run(*point)
    window = steady_window_of(outcome) if is_steady else None
    return tuple(
        percentile_s(outcome, criterion, window or whole_window(outcome)) for criterion in criteria
    )


class _Search:
    """All that was judged so far, and what follows from it."""

    def __init__(
        self, judge: Judge, criteria: tuple[Criterion, ...], search: CapacitySearch
    ) -> None:
        self._criteria = criteria
        self._search = search
        self._judge = judge
        self._judged: dict[Point, tuple[float, ...]] = {}

    def result(self) -> Capacity:
        bound, capacity_per_s = self._bisect()
        self._probe(capacity_per_s)
        verdicts = self._verdicts()
        thresholds_per_s = self._thresholds()
        interval = median_interval(thresholds_per_s)
        if interval is None:
            raise ValueError("got no seed, expected one or more")
        return Capacity(
            search=self._search,
            criteria=self._criteria,
            bound=bound,
            capacity_per_s=capacity_per_s,
            thresholds_per_s=thresholds_per_s,
            interval=interval,
            verdicts=verdicts,
            contradictions=_contradictions([(v.rate_per_s, v.is_passed) for v in verdicts]),
            num_contradicting_seeds=sum(
                bool(_contradictions(self._history(seed))) for seed in self._search.seeds
            ),
        )

    def _bisect(self) -> tuple[Bound, float]:
        low_per_s, high_per_s = self._search.low_per_s, self._search.high_per_s
        if not self._passes(low_per_s):
            return Bound.BELOW, 0.0
        if self._passes(high_per_s):
            return Bound.ABOVE, high_per_s
        while not self._is_close(low_per_s, high_per_s):
            middle_per_s = math.sqrt(low_per_s * high_per_s)
            if self._passes(middle_per_s):
                low_per_s = middle_per_s
            else:
                high_per_s = middle_per_s
        return Bound.FOUND, low_per_s

    def _probe(self, capacity_per_s: float) -> None:
        search = self._search
        rates = [ratio * capacity_per_s for ratio in search.probe_ratios]
        inside = [rate for rate in rates if search.low_per_s < rate < search.high_per_s]
        self._require(product(inside, search.seeds))

    def _thresholds(self) -> tuple[float, ...]:
        """Each seed by itself; all seeds go forward together, so that a pool stays busy."""
        search = self._search
        self._require(product((search.low_per_s, search.high_per_s), search.seeds))
        brackets = {seed: self._bracket(seed) for seed in search.seeds}
        while wide := {s: b for s, b in brackets.items() if not self._is_close(*b)}:
            middles = {seed: math.sqrt(low * high) for seed, (low, high) in wide.items()}
            self._require((rate, seed) for seed, rate in middles.items())
            for seed, rate in middles.items():
                low, high = wide[seed]
                brackets[seed] = (rate, high) if self._is_met((rate, seed)) else (low, rate)
        return tuple(brackets[seed][0] for seed in search.seeds)

    def _bracket(self, seed: int) -> tuple[float, float]:
        """The highest passing rate below the lowest failing one, and that; equal at the bounds."""
        history = self._history(seed)
        failing = [rate for rate, is_passed in history if not is_passed]
        if not failing:
            return math.inf, math.inf
        passing = [rate for rate, is_passed in history if is_passed and rate < failing[0]]
        return (passing[-1], failing[0]) if passing else (0.0, 0.0)

    def _is_close(self, low_per_s: float, high_per_s: float) -> bool:
        return high_per_s <= low_per_s * (1 + self._search.tolerance_ratio)

    def _passes(self, rate_per_s: float) -> bool:
        self._require((rate_per_s, seed) for seed in self._search.seeds)
        return self._verdict(rate_per_s).is_passed

    def _verdict(self, rate_per_s: float) -> RateVerdict:
        points = [(rate_per_s, seed) for seed in self._search.seeds]
        passes = tuple(self._is_met(point) for point in points)
        return RateVerdict(
            rate_per_s,
            tuple(self._judged[point] for point in points),
            passes,
            2 * sum(passes) >= len(passes),
        )

    def _verdicts(self) -> tuple[RateVerdict, ...]:
        return tuple(self._verdict(rate) for rate in sorted({rate for rate, _ in self._judged}))

    def _history(self, seed: int) -> list[tuple[float, bool]]:
        """The seed's rates in ascending order, each with whether it passed."""
        points = sorted(point for point in self._judged if point[1] == seed)
        return [(point[0], self._is_met(point)) for point in points]

    def _is_met(self, point: Point) -> bool:
        values_s = self._judged[point]
        return all(
            value_s <= criterion.bound_s
            for value_s, criterion in zip(values_s, self._criteria, strict=True)
        )

    def _require(self, points: Iterable[Point]) -> None:
        """Judge those of the points that are not judged yet."""
        missing = [point for point in points if point not in self._judged]
        self._judged.update(zip(missing, self._judge(missing), strict=True))


def _contradictions(history: Sequence[tuple[float, bool]]) -> tuple[tuple[float, float], ...]:
    """Pairs out of ascending rates of which the lower fails and the higher passes."""
    return tuple(
        (lower, higher)
        for (lower, lower_passes), (higher, higher_passes) in combinations(history, 2)
        if higher_passes and not lower_passes
    )
