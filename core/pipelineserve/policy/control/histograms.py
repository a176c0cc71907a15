"""Percentiles that can be merged: counts in buckets whose bounds grow by a constant factor.

DDSketch (Masson, Rim and Lee, VLDB 2019): bucket i holds values above g^(i-1) and up to g^i with
g = (1 + e) ÷ (1 - e). Whatever a bucket holds, 2·g^i ÷ (g + 1) is within the share e of it. Merging
adds counts, so it is exact, associative and commutative: percentiles of several replicas, or of
several slices of time, come from merged counts and never from averaged percentiles.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, isfinite, log

# A microsecond and eleven days: whatever is beyond is counted at the bound.
LEAST_VALUE_S = 1e-6
MOST_VALUE_S = 1e6


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values at or above 0.

    Attributes:
        error_ratio: e; percentiles are within this share of a value between the least and the most.
        num_refused: values that were none: negative, infinite or not a number.
        num_least: values at or below the least, 0 included.
        buckets: index and count of every bucket that holds anything, ascending.
    """

    error_ratio: float = 0.01
    num_refused: int = 0
    num_least: int = 0
    buckets: tuple[tuple[int, int], ...] = ()

    @property
    def num_values(self) -> int:
        """Values counted, refused ones not."""
        return self.num_least + sum(count for _, count in self.buckets)

    def plus(self, values: Iterable[float]) -> "Histogram":
        """Count these values too."""
        counts, num_least, num_refused = Counter(dict(self.buckets)), 0, 0
        log_growth = log(self._growth)
        for value in values:
            if not isfinite(value) or value < 0.0:
                num_refused += 1
            elif value <= LEAST_VALUE_S:
                num_least += 1
            else:
                counts[ceil(log(min(value, MOST_VALUE_S)) / log_growth)] += 1
        return Histogram(
            error_ratio=self.error_ratio,
            num_refused=self.num_refused + num_refused,
            num_least=self.num_least + num_least,
            buckets=tuple(sorted(counts.items())),
        )

    def merged(self, other: "Histogram") -> "Histogram":
        """Both counts together.

        Raises:
            ValueError: their buckets differ.
        """
        return merge_all((self, other))

    def percentile(self, percentile: float) -> float | None:
        """The smallest value that at least so many percent of all are not above; None if empty.

        Values at or below the least are given as 0.
        """
        num_values = self.num_values
        if num_values == 0:
            return None
        rank = max(1, ceil(num_values * percentile / 100.0))
        if rank <= self.num_least:
            return 0.0
        below = list(accumulate((count for _, count in self.buckets), initial=self.num_least))
        index, _ = self.buckets[bisect_right(below, rank - 1) - 1]
        return float(2.0 * self._growth**index / (self._growth + 1.0))

    @property
    def _growth(self) -> float:
        return (1.0 + self.error_ratio) / (1.0 - self.error_ratio)


def merge_all(histograms: Iterable[Histogram]) -> Histogram:
    """All counts together, in one pass; of none at all, an empty one.

    Raises:
        ValueError: their buckets differ.
    """
    every = tuple(histograms)
    if not every:
        return Histogram()
    error_ratio = every[0].error_ratio
    counts: dict[int, int] = {}
    for histogram in every:
        if histogram.error_ratio != error_ratio:
            raise ValueError(
                f"histograms: expected the same error ratio, got {error_ratio} "
                f"and {histogram.error_ratio}; make both with the same settings"
            )
        for index, count in histogram.buckets:
            counts[index] = counts.get(index, 0) + count
    return Histogram(
        error_ratio=error_ratio,
        num_refused=sum(histogram.num_refused for histogram in every),
        num_least=sum(histogram.num_least for histogram in every),
        buckets=tuple(sorted(counts.items())),
    )
