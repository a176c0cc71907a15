"""What a run comes to: latencies as clients saw them, bubbles and chunks as the engine reported."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.control.watching import SeenStep

from pipelineserve.load.summaries import Share, Summary, share_of, summarise
from pipelineserve_cli.load.records import RequestRecord


@dataclass(frozen=True)
class Run:
    """One contestant, one seed.

    Attributes:
        begin_s: the load's begin on the clock of the steps.
    """

    contestant: str
    seed: int
    begin_s: float
    records: tuple[RequestRecord, ...]
    steps: tuple[SeenStep, ...]


@dataclass(frozen=True)
class Figures:
    """All runs of one contestant together.

    Attributes:
        attainment: requests that met every target; those without an answer did not.
        attainments: the same of each seed.
        largest_gap: of each request, summed up.
        bubble_ratio: idle share of the stages while there was work.
        num_failed: requests without a whole answer.
    """

    contestant: str
    attainment: Share
    attainments: tuple[float, ...]
    ttft: Summary
    tpot: Summary
    largest_gap: Summary
    step_time: Summary
    bubble_ratio: float
    chunk: Summary
    num_failed: int


def figures_of(
    contestant: str, runs: Sequence[Run], ttft_target_s: float, tpot_target_s: float
) -> Figures:
    """Sum up.

    Raises:
        ValueError: no request of these runs was answered, or no step seen.
    """
    met = [
        [_is_met(record, ttft_target_s, tpot_target_s) for record in run.records] for run in runs
    ]
    answered = [record for run in runs for record in run.records if record.failure is None]
    steps = [step.record for run in runs for step in run.steps]
    attainment = share_of(sum(map(sum, met)), sum(map(len, met)))
    if attainment is None:
        raise ValueError(f"{contestant}: no requests")
    busy_s = sum(sum(step.step_time_s) for step in steps)
    idle_s = sum(sum(step.bubble_s) for step in steps)
    return Figures(
        contestant,
        attainment,
        tuple(fmean(seed) for seed in met),
        _summary(record.ttft_s for record in answered),
        _summary(record.tpot_s for record in answered),
        _summary(max(record.gaps_s, default=0.0) for record in answered),
        _summary(max(step.step_time_s) for step in steps),
        idle_s / (busy_s + idle_s),
        _summary(step.chunk_tokens for step in steps),
        sum(len(run.records) for run in runs) - len(answered),
    )


def _is_met(record: RequestRecord, ttft_target_s: float, tpot_target_s: float) -> bool:
    if record.failure is not None or record.ttft_s is None:
        return False
    is_tpot_met = record.tpot_s is None or record.tpot_s <= tpot_target_s
    return record.ttft_s <= ttft_target_s and is_tpot_met


def _summary(values: Iterable[float | None]) -> Summary:
    found = summarise(value for value in values if value is not None)
    if found is None:
        raise ValueError("nothing was measured")
    return found


def print_table(all_figures: Sequence[Figures]) -> None:
    """One row per contestant; times in ms, P50 / P90 / P99."""
    print(
        f"{'policy':18}{'attained':>20}{'TTFT ms':>20}{'TPOT ms':>16}{'gap P50/P99/max ms':>20}"
        f"{'step ms':>14}{'bubble':>8}{'chunk':>12}"
    )
    for figures in all_figures:
        low, high = min(figures.attainments), max(figures.attainments)
        attained = f"{figures.attainment.ratio:.0%} ({low:.0%}-{high:.0%})"
        gap = figures.largest_gap
        gaps = "/".join(f"{1000 * value:.0f}" for value in (gap.p50, gap.p99, gap.max))
        print(
            f"{figures.contestant:18}{attained:>20}{_ms(figures.ttft):>20}{_ms(figures.tpot):>16}"
            f"{gaps:>20}{_ms(figures.step_time):>14}{figures.bubble_ratio:>8.0%}"
            f"{figures.chunk.p50:>6.0f}/{figures.chunk.p90:<5.0f}"
        )


def _ms(summary: Summary) -> str:
    return "/".join(f"{1000 * value:.0f}" for value in (summary.p50, summary.p90, summary.p99))
