"""When requests arrive: random processes of a given mean rate, or a file's own timestamps."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum


class ArrivalKind(Enum):
    """What `--arrivals` may say."""

    POISSON = "poisson"
    GAMMA = "gamma"
    CONSTANT = "constant"
    BURSTS = "bursts"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class Poisson:
    """Exponential gaps."""

    rate_per_s: float

    def __str__(self) -> str:
        return f"Poisson, {self.rate_per_s:g}/s"


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma-distributed gaps; `cv` is their standard deviation over their mean (1 is Poisson)."""

    rate_per_s: float
    cv: float

    def __str__(self) -> str:
        return f"gamma gaps, {self.rate_per_s:g}/s, CV {self.cv:g}"


@dataclass(frozen=True, slots=True)
class Constant:
    """Equal gaps."""

    rate_per_s: float

    def __str__(self) -> str:
        return f"constant, {self.rate_per_s:g}/s"


@dataclass(frozen=True, slots=True)
class Bursts:
    """Poisson for `on_s`, nothing for `off_s`, and again; `rate_per_s` is the mean over both."""

    rate_per_s: float
    on_s: float
    off_s: float

    @property
    def on_rate_per_s(self) -> float:
        """The rate while it is on."""
        return self.rate_per_s * (self.on_s + self.off_s) / self.on_s

    def __str__(self) -> str:
        return (
            f"bursts, {self.rate_per_s:g}/s on average: Poisson {self.on_rate_per_s:g}/s for "
            f"{self.on_s:g} s, none for {self.off_s:g} s"
        )


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The file's own times, `rate_scale` times as fast."""

    rate_scale: float = 1.0

    def __str__(self) -> str:
        return f"the file's timestamps, rate x {self.rate_scale:g}"


Process = Poisson | Gamma | Constant | Bursts
Arrivals = Process | Timestamps


def arrival_times_s(process: Process, chance: random.Random) -> Iterator[float]:
    """Endless, ascending, the first at 0; gaps are never rescaled to fit a total time."""
    match process:
        case Bursts():
            busy = _sums(lambda: chance.expovariate(process.on_rate_per_s))
            return (_with_pauses(at_s, process) for at_s in busy)
        case Poisson(rate_per_s):
            return _sums(lambda: chance.expovariate(rate_per_s))
        case Gamma(rate_per_s, cv):
            # Shape 1/cv² has that CV; the scale then gives the mean.
            return _sums(lambda: chance.gammavariate(1 / cv**2, cv**2 / rate_per_s))
        case Constant(rate_per_s):
            # A product, not a sum: no rounding error grows over a long run.
            return _multiples(1 / rate_per_s)


def _sums(next_gap_s: Callable[[], float]) -> Iterator[float]:
    at_s = 0.0
    while True:
        yield at_s
        at_s += next_gap_s()


def _multiples(gap_s: float) -> Iterator[float]:
    index = 0
    while True:
        yield index * gap_s
        index += 1


def _with_pauses(busy_s: float, bursts: Bursts) -> float:
    """Put the pauses back into a time that counts only what is on."""
    return busy_s + math.floor(busy_s / bursts.on_s) * bursts.off_s
