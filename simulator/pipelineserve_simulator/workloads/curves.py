"""Distributions as shipped: a curve through a few quantiles, and how two of them go together."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random


@dataclass(frozen=True, slots=True)
class QuantileCurve:
    """The inverse of a distribution function, straight between its knots.

    Attributes:
        ranks: ascending, from 0 to 1.
        values: at these ranks; never falling, never negative.
    """

    ranks: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what is no distribution.

        Raises:
            ValueError: what is wrong with it.
        """
        if len(self.ranks) != len(self.values) or len(self.ranks) < 2:
            counts = f"{len(self.ranks)} ranks and {len(self.values)} values"
            raise ValueError(f"got {counts}, expected as many of both, at least two")
        if self.ranks[0] != 0 or self.ranks[-1] != 1:
            ends = f"from {self.ranks[0]} to {self.ranks[-1]}"
            raise ValueError(f"got ranks {ends}, expected from 0 to 1")
        if any(later <= earlier for earlier, later in pairwise(self.ranks)):
            raise ValueError("got ranks that do not rise, expected each above the one before")
        if self.values[0] < 0 or any(later < earlier for earlier, later in pairwise(self.values)):
            raise ValueError("got values that fall or are negative, expected neither")

    @property
    def mean(self) -> float:
        """Of the distribution."""
        return sum(
            (later - earlier) * (below + above) / 2
            for (earlier, later), (below, above) in zip(
                pairwise(self.ranks), pairwise(self.values), strict=True
            )
        )

    def at(self, rank: float) -> float:
        """The value below which a share of `rank` lies; `rank` from 0 to 1."""
        index = min(bisect_right(self.ranks, rank), len(self.ranks) - 1)
        low, high = self.ranks[index - 1], self.ranks[index]
        below, above = self.values[index - 1], self.values[index]
        return below + (above - below) * (rank - low) / (high - low)


@dataclass(frozen=True, slots=True)
class JointCurves:
    """Two quantities, each with its curve, and a table of which ranks come together.

    Attributes:
        weights: of the pairs of ranks in bins of equal width, the first quantity's bin chosen by
            the row; within a pair of bins both ranks are uniform and independent.
    """

    first: QuantileCurve
    second: QuantileCurve
    weights: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a table that is no table.

        Raises:
            ValueError: what is wrong with it.
        """
        widths = {len(row) for row in self.weights}
        if widths != {len(self.weights)}:
            text = f"got {len(self.weights)} rows of {sorted(widths)} weights"
            raise ValueError(f"{text}, expected as many in each row as there are rows")
        flat = [weight for row in self.weights for weight in row]
        if min(flat) < 0 or sum(flat) == 0:
            raise ValueError("got weights below 0 or nothing but 0, expected shares")

    def draws(self, chance: Random) -> Iterator[tuple[float, float]]:
        """Endless pairs."""
        num_bins = len(self.weights)
        bounds = list(accumulate(weight for row in self.weights for weight in row))
        while True:
            cell = bisect_right(bounds, chance.random() * bounds[-1])
            row, column = divmod(cell, num_bins)
            yield (
                self.first.at((row + chance.random()) / num_bins),
                self.second.at((column + chance.random()) / num_bins),
            )
