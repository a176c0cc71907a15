"""Over several seeds: means with Student's t interval, medians with their order-statistic interval.

With the five or ten seeds that are usual here a bootstrap is too narrow (its spread is that of the
sample, short by √((n - 1) ÷ n), with normal instead of t quantiles); t is not, where runs are
independent and their figure is roughly normal. The interval of a median assumes nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

_Z = NormalDist().inv_cdf(0.975)
# Student's t, 97.5 % quantile, for 1, 2, ... degrees of freedom; the series below is within 0.01 %
# of it beyond.
_T = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
)  # fmt: skip
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over runs; low and high are its 95 % interval, None for a single run."""

    mean: float
    low: float | None
    high: float | None
    num_runs: int


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """Two of the sample's values that hold the true median with probability `confidence`.

    Attributes:
        confidence: at least 0.95 from six values on; below, that of the smallest and largest.
    """

    low: float
    high: float
    confidence: float


def estimate(values: Sequence[float]) -> Estimate | None:
    """None for an empty sample."""
    if not values:
        return None
    mean = fmean(values)
    if len(values) == 1:
        return Estimate(mean, None, None, 1)
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, len(values))


def t_quantile(degrees_of_freedom: int) -> float:
    """97.5 % quantile of Student's t, for a two-sided 95 % interval."""
    if degrees_of_freedom <= len(_T):
        return _T[degrees_of_freedom - 1]
    # Abramowitz and Stegun 26.7.5, to the third power of 1 / n.
    z, n = _Z, float(degrees_of_freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + (first + (second + third / n) / n) / n


def median_interval(values: Sequence[float]) -> MedianInterval | None:
    """The narrowest symmetric one with at least 95 %, else the widest; None for an empty sample."""
    if not values:
        return None
    ordered, count = sorted(values), len(values)
    widths = range((count - 1) // 2, -1, -1)
    cut = next((cut for cut in widths if _confidence(count, cut) >= _CONFIDENCE), 0)
    return MedianInterval(ordered[cut], ordered[count - 1 - cut], _confidence(count, cut))


def _confidence(count: int, cut: int) -> float:
    """That the median lies between the `cut`-th value from below and from above, counted from 0."""
    outside = sum(math.comb(count, below) for below in range(cut + 1))
    return max(0.0, 1 - math.ldexp(outside, 1 - count))
