"""Statistics of a run: percentiles, and an interval for a share."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

_Z_95 = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Summary:
    """A sample in a few numbers."""

    num_values: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Share:
    """`num_met` of `num_judged`, with Wilson's 95 % interval for the true share."""

    num_met: int
    num_judged: int
    ratio: float
    low_ratio: float
    high_ratio: float


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of ascending values, by linear interpolation at (n - 1) * percent / 100 (numpy's default)."""
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    share = position - below
    # Not a weighted sum of both: that can fall outside of them by rounding.
    return ordered[below] + (ordered[above] - ordered[below]) * share


def summarise(values: Iterable[float]) -> Summary | None:
    """None for an empty sample."""
    ordered = sorted(values)
    if not ordered:
        return None
    p50, p90, p95, p99 = (percentile(ordered, percent) for percent in (50, 90, 95, 99))
    return Summary(len(ordered), fmean(ordered), p50, p90, p95, p99, ordered[-1])


def share_of(num_met: int, num_judged: int) -> Share | None:
    """None when nothing was judged. Interval: Wilson's score, without continuity correction."""
    if num_judged == 0:
        return None
    ratio = num_met / num_judged
    scale = 1 + _Z_95**2 / num_judged
    centre = (ratio + _Z_95**2 / (2 * num_judged)) / scale
    spread = math.sqrt(ratio * (1 - ratio) / num_judged + (_Z_95 / (2 * num_judged)) ** 2)
    half = _Z_95 * spread / scale
    # The exact bounds at 0 and n are 0 and 1; rounding misses them.
    low = 0.0 if num_met == 0 else centre - half
    high = 1.0 if num_met == num_judged else centre + half
    return Share(num_met, num_judged, ratio, low, high)
