"""Latencies for people: written when they change by a step, and not too often.

Every request changes them, every status that is written wakes everybody who watches, and exact
figures are in the metrics.
"""

from dataclasses import dataclass

from pipelineserve.api import LatencyTarget, SloSpec
from pipelineserve.api.status import SloStatus, SummaryStatus
from pipelineserve_operator.findings import ResourceReport

LEAST_INTERVAL_S = 5.0
_LATENCY_STEP_RATIO = 0.05
_REQUESTS_STEP_RATIO = 0.1


@dataclass(frozen=True, slots=True)
class Figures:
    """What the status says of latencies.

    Attributes:
        look_again_s: when newer ones may be written; None if these are the newest.
    """

    slo: SloStatus | None
    look_again_s: float | None = None


def figures_of(report: ResourceReport) -> SloStatus:
    """The newest figures."""
    ratio = report.attainment_ratio
    return SloStatus(
        attainment_percent=None if ratio is None else int(100.0 * ratio),
        ttft_milliseconds=_milliseconds(report.ttft_s),
        tpot_milliseconds=_milliseconds(report.tpot_s),
        requests=report.num_requests,
    )


def next_figures(
    old: SloStatus | None, newest: SloStatus | None, written_s: float | None, now_s: float
) -> Figures:
    """What is to be said now.

    Args:
        old: what is said; None for nothing.
        newest: what could be said; None keeps the old.
        written_s: when figures were last written by this process; None if never.
        now_s: on the same clock.
    """
    if newest is None or (old is not None and not _is_step(old, newest)):
        return Figures(old)
    free_s = None if written_s is None else written_s + LEAST_INTERVAL_S
    if free_s is not None and now_s < free_s:
        return Figures(old, free_s)
    return Figures(newest)


def summary_of(
    slo: SloStatus | None, spec: SloSpec, num_serving: int, num_wanted: int
) -> SummaryStatus:
    """Texts for `kubectl get`."""
    said = slo or SloStatus()
    attained = said.attainment_percent
    return SummaryStatus(
        replicas=f"{num_serving}/{num_wanted}",
        ttft=_against(said.ttft_milliseconds, spec.ttft),
        tpot=_against(said.tpot_milliseconds, spec.tpot),
        slo="" if attained is None else f"{attained}%",
    )


def _is_step(old: SloStatus, newest: SloStatus) -> bool:
    return (
        old.attainment_percent != newest.attainment_percent
        or _differs(old.ttft_milliseconds, newest.ttft_milliseconds, _LATENCY_STEP_RATIO)
        or _differs(old.tpot_milliseconds, newest.tpot_milliseconds, _LATENCY_STEP_RATIO)
        or _differs(old.requests, newest.requests, _REQUESTS_STEP_RATIO)
    )


def _differs(old: int | None, newest: int | None, step_ratio: float) -> bool:
    if old is None or newest is None:
        return old is not newest
    return abs(newest - old) > step_ratio * max(old, newest)


def _milliseconds(span_s: float | None) -> int | None:
    return None if span_s is None else round(1000.0 * span_s)


def _against(measured_milliseconds: int | None, target: LatencyTarget | None) -> str:
    """`1.8s/2s`; a target alone while nothing is measured."""
    if target is None:
        return "" if measured_milliseconds is None else _short(measured_milliseconds)
    measured = "-" if measured_milliseconds is None else _short(measured_milliseconds)
    return f"{measured}/{_short(target.milliseconds)}"


def _short(milliseconds: int) -> str:
    return f"{milliseconds}ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g}s"
