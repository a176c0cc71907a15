"""What is kept of one simulation: enough for every experiment, and small."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipelineserve.load.summaries import Summary, percentile, summarise
from pipelineserve.load.targets import Target, Targets, Window
from pipelineserve_simulator.measures.criteria import Criterion, Latency, percentile_s
from pipelineserve_simulator.measures.figures import measure, meets, steady_window_of, whole_window
from pipelineserve_simulator.measures.runs import RunOutcome, StepOutcome

# Percentiles that some capacity is judged by; one that is infinite is kept as None.
JUDGED = (
    (Latency.TTFT, 90.0),
    (Latency.TPOT, 90.0),
    (Latency.TTFT, 99.0),
)
_CURVE_PERCENTS = (*range(100), 99.5, 99.9, 100)
# The paper counts what is done within a minute, too.
_SOON_S = 60.0


@dataclass(frozen=True, slots=True)
class TargetPair:
    """TTFT and TPOT that a request shall keep, in seconds."""

    ttft_s: float
    tpot_s: float

    def scaled(self, factor: float) -> "TargetPair":
        """Both of them."""
        return TargetPair(self.ttft_s * factor, self.tpot_s * factor)

    @property
    def targets(self) -> Targets:
        """At the percentile that the paper judges."""
        return Targets(Target(90, self.ttft_s), Target(90, self.tpot_s))


PAPER_TARGETS = TargetPair(2.0, 0.2)
STRICT_TPOT = TargetPair(2.0, 0.15)
TIGHTER_TARGETS = tuple(PAPER_TARGETS.scaled(scale) for scale in (0.8, 0.6, 0.4))


@dataclass(frozen=True, slots=True)
class Attained:
    """Shares of all requests.

    Attributes:
        ratio: both targets met.
        soon_ratio: met, and finished within a minute.
    """

    targets: TargetPair
    ratio: float
    soon_ratio: float


@dataclass(frozen=True, slots=True)
class PredictorErrors:
    """Mean absolute error ÷ the step that was predicted, before it was learned from.

    Attributes:
        tokens_only_ratio: of a line over tokens, fitted before serving.
        candidate_only_ratio: of the same line at the candidate that holds the tokens, as the full
            prediction takes its table.
        full_ratio: of the table and the fitted terms on top, as released.
    """

    num_steps: int
    tokens_only_ratio: float
    candidate_only_ratio: float
    full_ratio: float


@dataclass(frozen=True, slots=True)
class TrialFigures:
    """The whole run, drain included.

    Attributes:
        num_micro_batches: composed.
        judged_s: percentiles as `JUDGED` lists them.
        steady_judged_s: the same of the steady window; None where a run has none.
        step_s: in lock step the steps of all stages together, else the longest stage of each
            micro-batch.
        step_curve_s: (percent, seconds), for drawing its distribution.
        predictor: None where no predictor was watched.
    """

    num_requests: int
    num_finished: int
    num_micro_batches: int
    num_preemptions: int
    duration_s: float
    ttft_s: Summary
    tpot_s: Summary
    e2e_s: Summary
    longest_gap_s: Summary
    step_s: Summary
    step_curve_s: tuple[tuple[float, float], ...]
    judged_s: tuple[float | None, ...]
    steady_judged_s: tuple[float | None, ...] | None
    attained: tuple[Attained, ...]
    bubble_ratio: float
    kv_used_ratio_max: float
    kv_used_ratio_mean: float
    predictor: PredictorErrors | None = None

    def attainment(self, targets: TargetPair) -> Attained:
        """The shares for these targets, which must have been judged."""
        return next(shares for shares in self.attained if shares.targets == targets)

    def judged(self, criterion: Criterion) -> float:
        """The percentile that a criterion asks for; infinite where requests failed."""
        value_s = self.judged_s[JUDGED.index((criterion.latency, criterion.percent))]
        return math.inf if value_s is None else value_s


def figures_of(
    run: RunOutcome, targets: Sequence[TargetPair], predictor: PredictorErrors | None
) -> TrialFigures:
    """Measure a run.

    Raises:
        ValueError: no request of it ever had two tokens.
    """
    whole = measure(run, PAPER_TARGETS.targets, whole_window(run))
    steady = steady_window_of(run)
    steps = whole.steps
    ttft_s, tpot_s, e2e_s = whole.ttft_s, whole.tpot_s, whole.e2e_s
    gap_s = whole.longest_gap_s
    if ttft_s is None or tpot_s is None or e2e_s is None or gap_s is None or steps is None:
        raise ValueError("got a run without a finished answer, expected some; its load is wrong")
    ordered = sorted(_step_s(step) for step in run.steps)
    return TrialFigures(
        num_requests=whole.num_arrived,
        num_finished=whole.num_finished,
        num_micro_batches=steps.num_steps,
        num_preemptions=run.num_preemptions,
        duration_s=run.duration_s,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        e2e_s=e2e_s,
        longest_gap_s=gap_s,
        step_s=_summary_of_some(ordered),
        step_curve_s=tuple((float(at), percentile(ordered, at)) for at in _CURVE_PERCENTS),
        judged_s=_judged(run, whole_window(run)),
        steady_judged_s=None if steady is None else _judged(run, steady),
        attained=tuple(_attained(run, pair) for pair in targets),
        bubble_ratio=steps.mean_bubble_ratio,
        kv_used_ratio_max=run.kv_used_ratio_max,
        kv_used_ratio_mean=run.kv_used_ratio_mean,
        predictor=predictor,
    )


def _step_s(step: StepOutcome) -> float:
    return max(step.stage_times_s) if step.lock_step_s is None else step.lock_step_s


def _summary_of_some(values: Sequence[float]) -> Summary:
    summary = summarise(values)
    if summary is None:
        raise ValueError("got no step, expected at least one")
    return summary


def _judged(run: RunOutcome, window: Window) -> tuple[float | None, ...]:
    values_s = [
        percentile_s(run, Criterion(latency, percent, math.inf), window)
        for latency, percent in JUDGED
    ]
    return tuple(value_s if math.isfinite(value_s) else None for value_s in values_s)


def _attained(run: RunOutcome, pair: TargetPair) -> Attained:
    met = [request for request in run.requests if meets(request, pair.targets)]
    soon = [request for request in met if (request.e2e_s or 0.0) <= _SOON_S]
    num = len(run.requests)
    return Attained(pair, len(met) / num, len(soon) / num)
