"""Lines of the acceptance table: a fact, what was published of it, ours, and the verdict."""

from dataclasses import dataclass, field
from enum import Enum

from pipelineserve_simulator.reproduce.charts import Chart


class Verdict(Enum):
    """Of one line."""

    FITS = "fits"
    MISSES = "misses"
    REPORTED = "reported"


class Unit(Enum):
    """How a number is shown."""

    PER_S = "/s"
    MS = "ms"
    S = "s"
    PERCENT = "%"
    RATIO = "x"
    TOKENS = "tokens"

    def show(self, value: float) -> str:
        """With as many digits as mean something; shares are kept as shares of 1."""
        match self:
            case Unit.PERCENT:
                return f"{100 * value:.1f} %"
            case Unit.MS:
                return f"{1000 * value:.1f} ms"
            case Unit.S:
                return f"{value:.2f} s"
            case Unit.PER_S:
                return f"{value:.2f} /s"
            case Unit.RATIO:
                return f"{value:.2f} x"
            case Unit.TOKENS:
                return f"{value:.0f}"


@dataclass(frozen=True, slots=True)
class Accept:
    """Which values are accepted, both ends included, and how the table says it."""

    low: float
    high: float
    text: str

    def holds(self, value: float) -> bool:
        """Whether a value is accepted."""
        return self.low <= value <= self.high


def within_ratio(paper: float, ratio: float) -> Accept:
    """So much of the published value on either side."""
    return Accept(paper * (1 - ratio), paper * (1 + ratio), f"± {100 * ratio:.0f} %")


def within_points(paper: float, points: float) -> Accept:
    """So many percentage points on either side; `paper` is a share."""
    return Accept(paper - points / 100, paper + points / 100, f"± {points:.0f} points")


def between(low: float, high: float, text: str) -> Accept:
    """A range."""
    return Accept(low, high, text)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line.

    Attributes:
        paper: what was published, or what is aimed at, as the table shows it.
        ours: None where nothing came out.
        interval: 95 % over seeds, or for capacities the seeds' own spread.
        accept: None for what is only reported.
        basis: seeds, requests, window.
    """

    what: str
    paper: str
    ours: float
    unit: Unit
    accept: Accept | None = None
    interval: tuple[float, float] | None = None
    basis: str = ""

    @property
    def verdict(self) -> Verdict:
        """By the tolerance alone."""
        if self.accept is None:
            return Verdict.REPORTED
        return Verdict.FITS if self.accept.holds(self.ours) else Verdict.MISSES


@dataclass(frozen=True, slots=True)
class RowResult:
    """A row of the table.

    Attributes:
        row: its name.
        reason: why lines miss, where they do, as far as the supporting lines show it.
        supports: lines that say why, not judged.
        charts: drawings.
    """

    row: str
    title: str
    findings: tuple[Finding, ...]
    reason: str = ""
    supports: tuple[Finding, ...] = ()
    charts: tuple[Chart, ...] = field(default=())

    @property
    def explanation(self) -> str:
        """The reason, if anything misses."""
        return self.reason if self.verdict is Verdict.MISSES else ""

    @property
    def verdict(self) -> Verdict:
        """Misses if one line does, reported if none is judged."""
        verdicts = {finding.verdict for finding in self.findings}
        if Verdict.MISSES in verdicts:
            return Verdict.MISSES
        return Verdict.FITS if Verdict.FITS in verdicts else Verdict.REPORTED
