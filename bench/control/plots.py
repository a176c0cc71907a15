"""Two pictures: latencies and attainment per policy, and the chunk over time of one seed."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from bench.control.figures import Figures, Run
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

mpl.use("Agg")

_OURS = "#1b6ca8"
_OTHERS = "#8a8f98"
_FASTPP = "#c8702a"


def plot_latencies(
    path: Path, all_figures: Sequence[Figures], ttft_target_s: float, tpot_target_s: float
) -> None:
    """Attainment, TTFT, TPOT and the largest gap of every contestant, targets as lines."""
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), sharey=True, layout="constrained")
    names = [figures.contestant for figures in all_figures]
    rows = range(len(names))
    colours = [_colour(name) for name in names]
    axes[0].barh(rows, [100 * f.attainment.ratio for f in all_figures], color=colours)
    for row, figures in zip(rows, all_figures, strict=True):
        seeds = [100 * value for value in figures.attainments]
        axes[0].plot(seeds, [row] * len(seeds), "|", color="black", markersize=8)
    axes[0].set(title="requests that met both targets, %", xlim=(0, 100))
    axes[0].set_yticks(rows, names)
    axes[0].invert_yaxis()
    for axis, title, summaries, target_s in (
        (axes[1], "TTFT, s", [f.ttft for f in all_figures], ttft_target_s),
        (axes[2], "TPOT, s", [f.tpot for f in all_figures], tpot_target_s),
        (axes[3], "largest gap of a request, s", [f.largest_gap for f in all_figures], None),
    ):
        for row, summary, colour in zip(rows, summaries, colours, strict=True):
            axis.plot([summary.p50, summary.p99], [row, row], color=colour, linewidth=2)
            axis.plot(summary.p50, row, "o", color=colour)
            axis.plot(summary.p90, row, "D", color=colour)
            axis.plot(summary.p99, row, "|", color=colour, markersize=12)
        if target_s is not None:
            axis.axvline(target_s, color="black", linestyle=":", linewidth=1)
        axis.set(title=title, xlim=(0, None))
    figure.supxlabel("circle P50, diamond P90, bar P99; dotted: target; short lines: seeds", size=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_chunks(path: Path, runs: Sequence[Run], long_prompt_tokens: int) -> None:
    """The chunk of every micro-batch of these runs, which share a seed; bursts are shaded."""
    figure, axes = plt.subplots(
        len(runs), 1, figsize=(11, 1.4 * len(runs)), sharex=True, sharey=True, layout="constrained"
    )
    for axis, run in zip(axes, runs, strict=True):
        _plot_run(axis, run, long_prompt_tokens)
    axes[-1].set_xlabel("s since the load began; shaded: a long prompt waits or is being prefilled")
    figure.supylabel("chunk, tokens")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_run(axis: Axes, run: Run, long_prompt_tokens: int) -> None:
    for record in run.records:
        if record.prompt_tokens >= long_prompt_tokens and record.ttft_s is not None:
            axis.axvspan(record.sent_s, record.sent_s + record.ttft_s, color="#f0d9c4", linewidth=0)
    times_s = [step.at_s - run.begin_s for step in run.steps]
    colour = _colour(run.contestant)
    chunks = [step.record.chunk_tokens for step in run.steps]
    axis.step(times_s, chunks, where="post", color=colour, linewidth=1)
    axis.plot(times_s, [step.record.num_tokens for step in run.steps], ".", color=colour, ms=2)
    axis.set_title(run.contestant, loc="left", size=9)


def _colour(contestant: str) -> str:
    if contestant.startswith("Fastpp"):
        return _FASTPP
    return _OTHERS if contestant.startswith("static") else _OURS
