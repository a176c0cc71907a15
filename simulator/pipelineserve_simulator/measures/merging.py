"""One scenario over several seeds: each figure's mean with its interval, and what is pooled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipelineserve.load.summaries import Share, Summary, share_of
from pipelineserve_simulator.measures.figures import RunFigures, StepFigures
from pipelineserve_simulator.measures.intervals import Estimate, estimate


@dataclass(frozen=True, slots=True)
class MergedSummary:
    """Each number of a summary over runs; `max` is the largest of all, not a mean."""

    mean: Estimate
    p50: Estimate
    p90: Estimate
    p99: Estimate
    max: float


@dataclass(frozen=True, slots=True)
class MergedFigures:
    """Figures of one scenario over seeds; t intervals over runs, None where no run has the figure.

    Attributes:
        attainment_ratio: over runs; the one to compare by, since requests of one run wait for each
            other and are not independent.
        pooled_attainment: all requests of all runs together, with Wilson's interval, which takes
            them for independent and is too narrow under load.
        bubble_ratio: mean over the stages.
        kv_used_ratio_max: the largest of all runs.
        num_preemptions: of all runs together.
    """

    num_runs: int
    num_arrived: int
    num_finished: int
    ttft_s: MergedSummary | None
    tpot_s: MergedSummary | None
    e2e_s: MergedSummary | None
    longest_gap_s: MergedSummary | None
    step_span_s: MergedSummary | None
    longest_stage_s: MergedSummary | None
    attainment_ratio: Estimate | None
    pooled_attainment: Share | None
    goodput_per_s: Estimate | None
    requests_per_s: Estimate | None
    bubble_ratio: Estimate | None
    kv_used_ratio_max: float
    kv_used_ratio_mean: Estimate | None
    num_preemptions: int


def merge(runs: Sequence[RunFigures]) -> MergedFigures:
    """Of runs that differ in their seed only."""
    shares = [run.attainment for run in runs if run.attainment is not None]
    steps = [run.steps for run in runs if run.steps is not None]
    return MergedFigures(
        num_runs=len(runs),
        num_arrived=sum(run.num_arrived for run in runs),
        num_finished=sum(run.num_finished for run in runs),
        ttft_s=_merge(runs, lambda run: run.ttft_s),
        tpot_s=_merge(runs, lambda run: run.tpot_s),
        e2e_s=_merge(runs, lambda run: run.e2e_s),
        longest_gap_s=_merge(runs, lambda run: run.longest_gap_s),
        step_span_s=_merge_steps(steps, lambda step: step.span_s),
        longest_stage_s=_merge_steps(steps, lambda step: step.longest_stage_s),
        attainment_ratio=estimate([share.ratio for share in shares]),
        pooled_attainment=share_of(
            sum(share.num_met for share in shares), sum(share.num_judged for share in shares)
        ),
        goodput_per_s=estimate([run.goodput_per_s for run in runs]),
        requests_per_s=estimate([run.requests_per_s for run in runs]),
        bubble_ratio=estimate([step.mean_bubble_ratio for step in steps]),
        kv_used_ratio_max=max((run.kv_used_ratio_max for run in runs), default=0.0),
        kv_used_ratio_mean=estimate([run.kv_used_ratio_mean for run in runs]),
        num_preemptions=sum(run.num_preemptions for run in runs),
    )


def _merge(
    runs: Sequence[RunFigures], summary_of: Callable[[RunFigures], Summary | None]
) -> MergedSummary | None:
    return _merge_summaries([found for run in runs if (found := summary_of(run)) is not None])


def _merge_steps(
    steps: Sequence[StepFigures], summary_of: Callable[[StepFigures], Summary]
) -> MergedSummary | None:
    return _merge_summaries([summary_of(step) for step in steps])


def _merge_summaries(summaries: Sequence[Summary]) -> MergedSummary | None:
    mean, p50, p90, p99 = (
        estimate(values)
        for values in (
            [summary.mean for summary in summaries],
            [summary.p50 for summary in summaries],
            [summary.p90 for summary in summaries],
            [summary.p99 for summary in summaries],
        )
    )
    if mean is None or p50 is None or p90 is None or p99 is None:
        return None
    return MergedSummary(mean, p50, p90, p99, max(summary.max for summary in summaries))
