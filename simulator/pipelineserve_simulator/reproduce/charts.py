"""What is drawn, as data; how it is drawn is the report's."""

from dataclasses import dataclass
from enum import Enum

PAPER = "paper"
"""The name of the series that holds what was published; it comes first where there is one."""


class ChartKind(Enum):
    """How it is drawn."""

    BARS = "bars"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class Series:
    """One system's values.

    Attributes:
        xs: numbers, or for bars positions among the chart's `ticks`.
        lows, highs: intervals of the values; empty for none.
    """

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure.

    Attributes:
        ticks: names of the places of bars.
        x_max: where the axis ends; None for where values do.
    """

    title: str
    kind: ChartKind
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    ticks: tuple[str, ...] = ()
    x_max: float | None = None
    y_max: float | None = None
