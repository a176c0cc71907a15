"""Whether a run's percentiles meet their bounds; what capacity is judged by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pipelineserve.load.summaries import percentile
from pipelineserve.load.targets import Targets, Window
from pipelineserve_simulator.measures.runs import RequestOutcome, RunOutcome


class Latency(Enum):
    """Which latency."""

    TTFT = "TTFT"
    TPOT = "TPOT"
    E2E = "E2E"


@dataclass(frozen=True, slots=True)
class Criterion:
    """A percentile of a latency is at most `bound_s`."""

    latency: Latency
    percent: float
    bound_s: float

    def __str__(self) -> str:
        return f"P{self.percent:g} {self.latency.value} <= {self.bound_s * 1000:g} ms"


def p90_criteria(targets: Targets) -> tuple[Criterion, ...]:
    """What capacity@P90 asks for: the P90 of each latency that has a target meets it."""
    pairs = (
        (Latency.TTFT, targets.ttft), (Latency.TPOT, targets.tpot), (Latency.E2E, targets.e2e)
    )  # fmt: skip
    return tuple(
        Criterion(latency, 90, target.target_s) for latency, target in pairs if target is not None
    )


def with_tail(criteria: Sequence[Criterion], factor: float = 4.0) -> tuple[Criterion, ...]:
    """The same, and the P99 of TTFT within `factor` of its bound: no one starves unseen."""
    tails = tuple(
        Criterion(Latency.TTFT, 99, factor * criterion.bound_s)
        for criterion in criteria
        if criterion.latency is Latency.TTFT
    )
    return (*criteria, *tails)


def percentile_s(run: RunOutcome, criterion: Criterion, window: Window) -> float:
    """The percentile of the requests that arrive inside the window, in seconds.

    A failed request is infinitely late. A whole answer of one token has no TPOT and is left out,
    as everywhere. Nothing to judge is 0: an empty window keeps every bound.
    """
    inside = [request for request in run.requests if window.holds(request.arrival_s)]
    values_s = [_judged_s(request, criterion.latency) for request in inside]
    return _percentile_or_inf(
        sorted(value_s for value_s in values_s if value_s is not None), criterion.percent
    )


def _judged_s(request: RequestOutcome, latency: Latency) -> float | None:
    if not request.is_success:
        return math.inf
    match latency:
        case Latency.TTFT:
            return request.ttft_s
        case Latency.TPOT:
            return request.tpot_s
        case Latency.E2E:
            return request.e2e_s


def _percentile_or_inf(ordered: Sequence[float], percent: float) -> float:
    if not ordered:
        return 0.0
    position = (len(ordered) - 1) * percent / 100
    above = math.ceil(position)
    # Interpolation with infinity would be no number, also where its share is 0.
    if above == position or math.isinf(ordered[above]):
        return ordered[above]
    return percentile(ordered, percent)
