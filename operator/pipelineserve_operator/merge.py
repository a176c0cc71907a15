"""From the words of several replicas to what is said of their resource. Pure.

Percentiles come of merged histograms, never of averaged percentiles: two replicas of which one is
slow and busy are as slow as the requests that went there.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pipelineserve.api import PipelineServeSpec
from pipelineserve.api.targets import ControlMode, LatencyTarget
from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.histograms import Histogram, merge_all
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_operator.attend.statuses import histogram_of
from pipelineserve_operator.findings import Finding, LinkReason, ResourceReport
from pipelineserve_operator.link import Report

# A sidecar whose stream ended is back within this, or it counts as gone.
RECONNECT_S = 20.0
# After the operator began, sidecars may take as long as their longest pause to come back.
SETTLING_S = 60.0
_PERCENTILE_WITHOUT_TARGET = 90
_ANSWERS = {pb.VERDICT_TRUE: Answer.YES, pb.VERDICT_FALSE: Answer.NO}


@dataclass(frozen=True, slots=True)
class _Replicas:
    """The words that count: the latest of each replica that is wanted.

    Attributes:
        heard: of those that are connected, or were a moment ago.
        missing: indices of the others.
        ended_at_s: when each was last heard whose stream has ended.
    """

    heard: tuple[Report, ...]
    missing: tuple[int, ...]
    ended_at_s: tuple[float, ...]


def merge(
    reports: Iterable[Report], spec: PipelineServeSpec, *, now_s: float, began_at_s: float
) -> ResourceReport:
    """What the reports come to.

    Args:
        reports: of one resource, in any order.
        spec: of it: replicas, targets and mode.
        now_s: on the clock of the reports.
        began_at_s: when sidecars could first be heard, on that clock.
    """
    replicas = _replicas(reports, spec.replicas, now_s)
    heard = replicas.heard
    fresh = tuple(report for report in heard if report.status.are_metrics_fresh)
    ttft = merge_all(histogram_of(report.status.ttft) for report in fresh)
    tpot = merge_all(histogram_of(report.status.tpot) for report in fresh)
    settles_at_s = began_at_s + SETTLING_S
    is_waiting = bool(replicas.missing) and now_s < settles_at_s
    looks = [at_s + RECONNECT_S for at_s in replicas.ended_at_s]
    return ResourceReport(
        is_conclusive=not is_waiting,
        look_again_at_s=min(looks + ([settles_at_s] if is_waiting else []), default=None),
        ttft_s=_measured_s(ttft, spec.slo.ttft),
        tpot_s=_measured_s(tpot, spec.slo.tpot),
        num_requests=sum(report.status.num_requests for report in fresh),
        num_attained=sum(report.status.num_attained for report in fresh),
        received_generation=_of_all(replicas, lambda status: status.received_generation),
        applied_generation=_of_all(replicas, lambda status: status.applied_generation),
        applied=tuple((report.replica_index, report.status.applied_generation) for report in heard),
        reason=_commonest(report.status.reason for report in heard),
        connected=_connected(replicas, spec),
        effective=_effective(replicas, spec),
        fresh=_fresh(replicas, spec),
        slo_met=_slo_met(fresh, spec, ttft, tpot),
        slo_feasible=_slo_feasible(heard, spec),
    )


def _replicas(reports: Iterable[Report], num_replicas: int, now_s: float) -> _Replicas:
    latest: dict[int, Report] = {}
    for report in sorted(reports, key=lambda one: (one.is_connected, one.heard_at_s)):
        if report.replica_index < num_replicas and _counts(report, now_s):
            latest[report.replica_index] = report
    heard = tuple(latest[index] for index in sorted(latest))
    return _Replicas(
        heard=heard,
        missing=tuple(index for index in range(num_replicas) if index not in latest),
        ended_at_s=tuple(report.heard_at_s for report in heard if not report.is_connected),
    )


def _counts(report: Report, now_s: float) -> bool:
    return report.is_connected or now_s - report.heard_at_s < RECONNECT_S


def _measured_s(histogram: Histogram, target: LatencyTarget | None) -> float | None:
    return histogram.percentile(target.percentile if target else _PERCENTILE_WITHOUT_TARGET)


def _of_all(replicas: _Replicas, generation: Callable[[pb.ControllerStatus], int]) -> int | None:
    if replicas.missing:
        return None
    return min((generation(report.status) for report in replicas.heard), default=None)


def _commonest(reasons: Iterable[str]) -> str:
    """Of those that are given as often, the one of the first replica."""
    counts = Counter(reason for reason in reasons if reason)
    return max(counts, key=lambda reason: counts[reason], default="")


def _connected(replicas: _Replicas, spec: PipelineServeSpec) -> Finding:
    if spec.replicas == 0:
        return Finding(Answer.UNKNOWN, LinkReason.SCALED_TO_ZERO)
    if replicas.missing:
        return Finding(
            Answer.NO,
            LinkReason.NOT_CONNECTED,
            f"{_named(replicas.missing)}: no controller is connected; its engine serves on by "
            "what it was told last, then on the static chunk",
        )
    return Finding(Answer.YES, LinkReason.ALL_CONNECTED)


def _effective(replicas: _Replicas, spec: PipelineServeSpec) -> Finding:
    match spec.control.mode:
        case ControlMode.ADVISORY:
            return Finding(
                Answer.UNKNOWN, LinkReason.MODE_ADVISORY, "policies are shown and not sent"
            )
        case ControlMode.PAUSED:
            return Finding(Answer.UNKNOWN, LinkReason.MODE_PAUSED, "no policy is made")
        case ControlMode.ACTIVE:
            return _effective_when_active(replicas, spec)


def _effective_when_active(replicas: _Replicas, spec: PipelineServeSpec) -> Finding:
    apart = [one for one in replicas.heard if not one.status.is_engine_connected]
    if apart:
        return Finding(
            Answer.NO,
            LinkReason.ENGINE_DISCONNECTED,
            f"{_named(_indices(apart))}: the controller does not reach the engine",
        )
    idle = [one for one in replicas.heard if not one.status.is_control_effective]
    if idle:
        return Finding(
            Answer.NO,
            LinkReason.NOT_EFFECTIVE,
            f"{_named(_indices(idle))}: no policy of the controller is in force",
        )
    if replicas.missing:
        return _unheard(replicas, spec)
    return Finding(Answer.YES, LinkReason.EFFECTIVE)


def _fresh(replicas: _Replicas, spec: PipelineServeSpec) -> Finding:
    stale = [report for report in replicas.heard if not report.status.are_metrics_fresh]
    if stale:
        return Finding(
            Answer.NO,
            LinkReason.STALE,
            f"{_named(_indices(stale))}: measurements are missing or cannot be trusted",
        )
    if replicas.missing or not replicas.heard:
        return _unheard(replicas, spec)
    return Finding(Answer.YES, LinkReason.FRESH)


def _slo_met(
    fresh: tuple[Report, ...], spec: PipelineServeSpec, ttft: Histogram, tpot: Histogram
) -> Finding:
    """By the merged percentiles; one replica's own verdict holds where nothing is to be merged.

    A replica whose prompts wait in vain has no latency to show, and says so by its verdict.
    """
    if not fresh:
        return Finding(Answer.UNKNOWN, _why_nothing(spec))
    busy = [report for report in fresh if report.status.num_requests]
    if not busy:
        if any(_answer(report.status.slo_met) is Answer.NO for report in fresh):
            return Finding(
                Answer.NO,
                LinkReason.TARGETS_MISSED,
                "prompts wait for longer than the target and none gets a first token",
            )
        return Finding(Answer.UNKNOWN, LinkReason.NO_TRAFFIC, "no request ended in the window")
    missed = [
        f"{name} is above its target at percentile {target.percentile}"
        for name, histogram, target in (
            ("TTFT", ttft, spec.slo.ttft),
            ("TPOT", tpot, spec.slo.tpot),
        )
        if target is not None and not _is_within(histogram, target)
    ]
    if missed:
        return Finding(Answer.NO, LinkReason.TARGETS_MISSED, "; ".join(missed))
    return Finding(Answer.YES, LinkReason.TARGETS_MET)


def _is_within(histogram: Histogram, target: LatencyTarget) -> bool:
    """Whether the percentile meets its target; a latency that nobody had misses nothing."""
    measured_s = histogram.percentile(target.percentile)
    return measured_s is None or measured_s <= target.target_s


def _slo_feasible(heard: tuple[Report, ...], spec: PipelineServeSpec) -> Finding:
    if not heard:
        return Finding(Answer.UNKNOWN, _why_nothing(spec))
    answers = [_answer(report.status.slo_feasible) for report in heard]
    if Answer.NO in answers:
        report = heard[answers.index(Answer.NO)]
        return Finding(
            Answer.NO,
            LinkReason.INFEASIBLE,
            f"replica {report.replica_index}: {report.status.feasible_instead}".rstrip(": "),
        )
    if Answer.UNKNOWN in answers:
        return Finding(
            Answer.UNKNOWN,
            LinkReason.NOT_KNOWN_YET,
            "too little is known of the load, or of how long micro-batches take",
        )
    return Finding(Answer.YES, LinkReason.FEASIBLE)


def _unheard(replicas: _Replicas, spec: PipelineServeSpec) -> Finding:
    message = f"{_named(replicas.missing)}: not heard" if replicas.missing else ""
    return Finding(Answer.UNKNOWN, _why_nothing(spec), message)


def _why_nothing(spec: PipelineServeSpec) -> LinkReason:
    return LinkReason.NO_REPORT if spec.replicas else LinkReason.SCALED_TO_ZERO


def _answer(verdict: int) -> Answer:
    """A verdict that is not known here, of a later release, is no answer."""
    return _ANSWERS.get(verdict, Answer.UNKNOWN)


def _indices(reports: Iterable[Report]) -> tuple[int, ...]:
    return tuple(report.replica_index for report in reports)


def _named(indices: tuple[int, ...]) -> str:
    if len(indices) == 1:
        return f"replica {indices[0]}"
    shown = ", ".join(map(str, indices[:10]))
    return f"replicas {shown}" + (f" and {len(indices) - 10} more" if len(indices) > 10 else "")
