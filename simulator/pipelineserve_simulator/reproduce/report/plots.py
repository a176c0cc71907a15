"""Charts as SVG text, readable on light and on dark ground.

Whatever is not data takes the colour of the page's text, and the ground is the page's own.
"""

from collections.abc import Sequence
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pipelineserve_simulator.reproduce.charts import PAPER, Chart, ChartKind, Series

# Stands for the page's text colour until the drawing is text.
_INK = "#0a0b0c"
_PUBLISHED = "#9aa0a8"
_COLOURS = ("#2f81c7", "#d2762e", "#3f9f63", "#b0569c")
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.0,
    "legend.frameon": False,
}


def draw(chart: Chart) -> str:
    """An `<svg>` element; the same chart gives the same text."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": chart.title}):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        match chart.kind:
            case ChartKind.BARS:
                _draw_bars(axes, chart)
            case ChartKind.LINES:
                _draw_lines(axes, chart)
        axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
        axes.set_ylim(0, chart.y_max)
        if len(chart.series) > 1:
            axes.legend(loc="best")
        text = StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :].replace(_INK, "currentColor")


def _draw_bars(axes: Axes, chart: Chart) -> None:
    width = 0.8 / len(chart.series)
    for index, series in enumerate(chart.series):
        offset = (index - (len(chart.series) - 1) / 2) * width
        places = [x + offset for x in series.xs]
        axes.bar(
            places,
            series.ys,
            width,
            color=_colour(chart, index),
            label=series.name,
            yerr=_errors(series),
            error_kw={"ecolor": _INK, "linewidth": 1.0, "capsize": 2.5},
        )
    axes.set_xticks(range(len(chart.ticks)), chart.ticks)


def _draw_lines(axes: Axes, chart: Chart) -> None:
    for index, series in enumerate(chart.series):
        colour = _colour(chart, index)
        marker = "o" if len(series.xs) < 20 else ""
        axes.plot(
            series.xs, series.ys, color=colour, marker=marker, markersize=3.5, label=series.name
        )
        if series.lows:
            axes.fill_between(
                series.xs, series.lows, series.highs, color=colour, alpha=0.18, linewidth=0
            )
    if chart.x_max is not None:
        axes.set_xlim(0, chart.x_max)


def _colour(chart: Chart, index: int) -> str:
    """The paper's is grey; it comes first, and the series after it begin with the first colour."""
    has_paper = chart.series[0].name == PAPER
    if has_paper and index == 0:
        return _PUBLISHED
    return _COLOURS[(index - has_paper) % len(_COLOURS)]


def _errors(series: Series) -> Sequence[Sequence[float]] | None:
    """Distances below and above; an interval over seeds need not hold the value itself."""
    if not series.lows:
        return None
    below = [max(0.0, y - low) for y, low in zip(series.ys, series.lows, strict=True)]
    above = [max(0.0, high - y) for y, high in zip(series.ys, series.highs, strict=True)]
    return [below, above]
