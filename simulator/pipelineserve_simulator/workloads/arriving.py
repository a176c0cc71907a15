"""When requests arrive: random processes, and what was learned of the arrivals of traces."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Protocol

from pipelineserve.load.arrivals import Process, arrival_times_s
from pipelineserve_simulator.workloads.curves import QuantileCurve


class ArrivalSource(Protocol):
    """Times since the run's start, ascending; they may end."""

    @property
    def description(self) -> str:
        """In words."""
        ...

    def times_s(self, chance: Random) -> Iterator[float]:
        """The same chance gives the same times, however many are taken."""
        ...


@dataclass(frozen=True, slots=True)
class RandomArrivals:
    """A process of a given mean rate; endless, the first arrival at 0."""

    process: Process

    @property
    def description(self) -> str:
        """In words."""
        return f"{self.process}"

    def times_s(self, chance: Random) -> Iterator[float]:
        """See `ArrivalSource`."""
        return arrival_times_s(self.process, chance)


@dataclass(frozen=True, slots=True)
class ChangingRate:
    """Poisson arrivals at a rate that changes at fixed times; they end with the last of them.

    The first comes when the first rate above 0 begins.

    Attributes:
        origin: what the rates were counted in, in words.
        rates_per_s: one after the other, each for `bin_s`.
        rate_scale: how many times as fast all of it passes; 0.9 stretches 900 s to 1,000 s.
    """

    origin: str
    rates_per_s: tuple[float, ...]
    bin_s: float
    rate_scale: float = 1.0

    @property
    def description(self) -> str:
        """In words."""
        return (
            f"Poisson at the rates of {self.origin}, counted every {self.bin_s:g} s, "
            f"rate x {self.rate_scale:g}"
        )

    def times_s(self, chance: Random) -> Iterator[float]:
        """See `ArrivalSource`; a unit Poisson process in expected arrivals, mapped to time."""
        expected, bin_index = 0.0, 0
        ends = list(accumulate(rate_per_s * self.bin_s for rate_per_s in self.rates_per_s))
        while True:
            while bin_index < len(ends) and expected >= ends[bin_index]:
                bin_index += 1
            if bin_index == len(ends):
                return
            before = ends[bin_index - 1] if bin_index else 0.0
            into_s = (expected - before) / self.rates_per_s[bin_index]
            yield (bin_index * self.bin_s + into_s) / self.rate_scale
            expected += chance.expovariate(1.0)


@dataclass(frozen=True, slots=True)
class FittedGaps:
    """Independent gaps of one distribution; endless, the first arrival at 0.

    Where a few gaps are far longer than the rest these are silences, and what lies between them are
    bursts, whose lengths are then geometric.

    Attributes:
        origin: whose gaps they are, in words.
        gap_s: their distribution.
        rate_scale: how many times as fast all of it passes.
    """

    origin: str
    gap_s: QuantileCurve
    rate_scale: float = 1.0

    @property
    def description(self) -> str:
        """In words."""
        return f"independent gaps fitted to {self.origin}, rate x {self.rate_scale:g}"

    def times_s(self, chance: Random) -> Iterator[float]:
        """See `ArrivalSource`."""
        at_s = 0.0
        while True:
            yield at_s / self.rate_scale
            at_s += self.gap_s.at(chance.random())
