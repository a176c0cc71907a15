"""Latency targets, and the part of a run over which they are judged."""

from collections.abc import Sequence
from dataclasses import dataclass

_STEADY_FROM = 0.1
_STEADY_TO = 0.9
_FEWEST_STEADY = 10


@dataclass(frozen=True, slots=True)
class Target:
    """A bound for one latency, and the percentile that shall keep it."""

    percentile: int
    target_s: float


@dataclass(frozen=True, slots=True)
class Targets:
    """A request meets them if each of its latencies keeps its bound."""

    ttft: Target | None = None
    tpot: Target | None = None
    e2e: Target | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to meet."""
        return self.ttft is None and self.tpot is None and self.e2e is None

    def are_met(self, ttft_s: float | None, tpot_s: float | None, e2e_s: float | None) -> bool:
        """Whether a whole answer keeps every bound; one that it does not have, None, is kept."""
        pairs = ((ttft_s, self.ttft), (tpot_s, self.tpot), (e2e_s, self.e2e))
        return all(
            value_s is None or target is None or value_s <= target.target_s
            for value_s, target in pairs
        )


@dataclass(frozen=True, slots=True)
class Window:
    """A span of the run."""

    begin_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """Its length."""
        return self.end_s - self.begin_s

    def holds(self, at_s: float) -> bool:
        """Whether this moment is inside, both ends included."""
        return self.begin_s <= at_s <= self.end_s


def steady_window(arrivals_s: Sequence[float]) -> Window | None:
    """Between the arrivals at 10 % and 90 % of these, in order of time.

    None below 10 arrivals, or if all of the middle came at once.
    """
    if len(arrivals_s) < _FEWEST_STEADY:
        return None
    last = len(arrivals_s) - 1
    window = Window(arrivals_s[round(last * _STEADY_FROM)], arrivals_s[round(last * _STEADY_TO)])
    return window if window.duration_s > 0 else None
