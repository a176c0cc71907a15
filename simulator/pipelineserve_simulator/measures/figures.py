"""From a run to its figures, over the whole run or its steady window.

Requests belong to the window in which they arrive. The whole run lasts from the first arrival to
the last end, so that warm-up and drain are in it; the steady window lies between the arrivals at
10 % and 90 % of the requests and leaves both out. TTFT begins at the arrival.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from pipelineserve.load.summaries import Share, Summary, share_of, summarise
from pipelineserve.load.targets import Targets, Window, steady_window
from pipelineserve_simulator.measures.runs import RequestOutcome, RunOutcome, StepOutcome


@dataclass(frozen=True, slots=True)
class StepFigures:
    """Of the micro-batches that began inside a window and were kept by the executor.

    Attributes:
        span_s: from the begin on the first stage to the end on the last.
        longest_stage_s: the longest computation on one stage, of each micro-batch; what sets the
            pace of the pipeline.
        lock_step_s: the steps of all stages together; None where they run free.
        bubble_ratios: per stage, idle time with work in the pipeline ÷ that and the busy time.
        mean_bubble_ratio: over the stages.
    """

    num_steps: int
    span_s: Summary
    longest_stage_s: Summary
    lock_step_s: Summary | None
    num_tokens: Summary
    num_decodes: Summary
    chunk_tokens: Summary
    bubble_ratios: tuple[float, ...]
    mean_bubble_ratio: float


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What was measured of the requests that arrived inside a window.

    Attributes:
        ttft_s, tpot_s, e2e_s: of finished requests; None without any. One-token outputs have no
            TPOT.
        longest_gap_s: of each finished request; its `max` is the largest gap of all.
        held_s: of each finished request.
        attainment: requests that met every target, of all that arrived; failed ones did not, and
            one-token outputs meet any TPOT. None without requests.
        goodput_per_s: the same requests over the window's duration; the whole run's holds the
            drain.
        requests_per_s, output_tokens_per_s: of the requests that ended inside the window, over it.
        steps: None if none was kept.
        kv_used_ratio_max, kv_used_ratio_mean, num_preemptions: of the whole run, always.
    """

    window: Window
    num_arrived: int
    num_finished: int
    num_requeued: int
    ttft_s: Summary | None
    tpot_s: Summary | None
    e2e_s: Summary | None
    longest_gap_s: Summary | None
    held_s: Summary | None
    attainment: Share | None
    goodput_per_s: float
    requests_per_s: float
    output_tokens_per_s: float
    steps: StepFigures | None
    kv_used_ratio_max: float
    kv_used_ratio_mean: float
    num_preemptions: int

    @property
    def num_failed(self) -> int:
        """Arrived and not finished."""
        return self.num_arrived - self.num_finished


def whole_window(run: RunOutcome) -> Window:
    """From the first arrival to the last end; empty for a run without requests."""
    begin_s = min((request.arrival_s for request in run.requests), default=0.0)
    return Window(begin_s, max((request.end_s for request in run.requests), default=begin_s))


def steady_window_of(run: RunOutcome) -> Window | None:
    """None for runs too short to have one."""
    return steady_window([request.arrival_s for request in run.requests])


def measure(run: RunOutcome, targets: Targets, window: Window) -> RunFigures:
    """The figures of one window."""
    inside = [request for request in run.requests if window.holds(request.arrival_s)]
    finished = [request for request in inside if request.is_success]
    ended = [other for other in run.requests if other.is_success and window.holds(other.end_s)]
    num_met = sum(meets(request, targets) for request in inside)
    return RunFigures(
        window=window,
        num_arrived=len(inside),
        num_finished=len(finished),
        num_requeued=sum(request.num_requeues > 0 for request in inside),
        ttft_s=_summary(request.ttft_s for request in finished),
        tpot_s=_summary(request.tpot_s for request in finished),
        e2e_s=_summary(request.e2e_s for request in finished),
        longest_gap_s=summarise(request.longest_gap_s for request in finished),
        held_s=summarise(request.held_s for request in finished),
        attainment=share_of(num_met, len(inside)),
        goodput_per_s=_per_s(num_met, window.duration_s),
        requests_per_s=_per_s(len(ended), window.duration_s),
        output_tokens_per_s=_per_s(sum(end.output_tokens for end in ended), window.duration_s),
        steps=_measure_steps([step for step in run.steps if window.holds(step.start_s)]),
        kv_used_ratio_max=run.kv_used_ratio_max,
        kv_used_ratio_mean=run.kv_used_ratio_mean,
        num_preemptions=run.num_preemptions,
    )


def meets(request: RequestOutcome, targets: Targets) -> bool:
    """Whether a whole answer keeps every bound."""
    return request.is_success and targets.are_met(request.ttft_s, request.tpot_s, request.e2e_s)


def _summary(values_s: Iterable[float | None]) -> Summary | None:
    return summarise(value_s for value_s in values_s if value_s is not None)


def _per_s(amount: float, duration_s: float) -> float:
    return amount / duration_s if duration_s > 0 else 0.0


def _measure_steps(steps: Sequence[StepOutcome]) -> StepFigures | None:
    if not steps:
        return None
    bubbles = _bubble_ratios(steps)
    return StepFigures(
        num_steps=len(steps),
        span_s=_summary_of_some(step.span_s for step in steps),
        longest_stage_s=_summary_of_some(max(step.stage_times_s) for step in steps),
        lock_step_s=_summary(step.lock_step_s for step in steps),
        num_tokens=_summary_of_some(step.num_tokens for step in steps),
        num_decodes=_summary_of_some(step.num_decodes for step in steps),
        chunk_tokens=_summary_of_some(step.chunk_tokens for step in steps),
        bubble_ratios=bubbles,
        mean_bubble_ratio=fmean(bubbles),
    )


def _summary_of_some(values: Iterable[float]) -> Summary:
    summary = summarise(values)
    if summary is None:
        raise ValueError("got no value, expected at least one")
    return summary


def _bubble_ratios(steps: Sequence[StepOutcome]) -> tuple[float, ...]:
    busy_s = [sum(times_s) for times_s in zip(*(s.stage_times_s for s in steps), strict=True)]
    idle_s = [sum(times_s) for times_s in zip(*(s.bubbles_s for s in steps), strict=True)]
    return tuple(
        idle / (idle + busy) if idle + busy > 0 else 0.0
        for idle, busy in zip(idle_s, busy_s, strict=True)
    )
