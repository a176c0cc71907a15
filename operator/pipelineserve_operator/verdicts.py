"""The conditions that sidecars' words decide, one function for each. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from pipelineserve.api import PipelineServeSpec
from pipelineserve.api.targets import ControlMode, LatencyTarget
from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.histograms import Histogram
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_operator.findings import Finding, LinkReason
from pipelineserve_operator.link import Report

_ANSWERS = {pb.VERDICT_TRUE: Answer.YES, pb.VERDICT_FALSE: Answer.NO}


@dataclass(frozen=True, slots=True)
class Replicas:
    """The words that count: the latest of each replica that is wanted.

    Attributes:
        heard: of those that are connected, or were a moment ago.
        missing: indices of the others.
        ended_at_s: when each was last heard whose stream has ended.
    """

    heard: tuple[Report, ...]
    missing: tuple[int, ...]
    ended_at_s: tuple[float, ...]


def connected(replicas: Replicas, spec: PipelineServeSpec) -> Finding:
    """ControllerConnected."""
    if spec.replicas == 0:
        return _unheard(replicas, spec)
    if replicas.missing:
        return Finding(
            Answer.NO,
            LinkReason.NOT_CONNECTED,
            f"{_named(replicas.missing)}: no controller is connected; its engine serves on by "
            "what it was told last, then on the static chunk",
        )
    return Finding(Answer.YES, LinkReason.ALL_CONNECTED)


def effective(replicas: Replicas, spec: PipelineServeSpec) -> Finding:
    """ControlEffective."""
    if spec.replicas == 0:
        return _unheard(replicas, spec)
    match spec.control.mode:
        case ControlMode.ADVISORY:
            return Finding(
                Answer.UNKNOWN, LinkReason.MODE_ADVISORY, "policies are shown and not sent"
            )
        case ControlMode.PAUSED:
            return Finding(Answer.UNKNOWN, LinkReason.MODE_PAUSED, "no policy is made")
        case ControlMode.ACTIVE:
            return _effective_when_active(replicas, spec)


def _effective_when_active(replicas: Replicas, spec: PipelineServeSpec) -> Finding:
    apart = [one for one in replicas.heard if not one.status.is_engine_connected]
    if apart:
        return Finding(
            Answer.NO,
            LinkReason.ENGINE_DISCONNECTED,
            f"{_named(_indices(apart))}: the controller does not reach the engine",
        )
    inactive = [one for one in replicas.heard if one.status.inactive_reason]
    if inactive:
        return Finding(
            Answer.NO,
            LinkReason.ENGINE_INACTIVE,
            f"{_named(_indices(inactive))}: the engine serves but cannot be controlled: "
            f"{inactive[0].status.inactive_reason}",
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


def fresh(replicas: Replicas, spec: PipelineServeSpec) -> Finding:
    """MetricsFresh."""
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


def slo_met(
    counted: tuple[Report, ...], spec: PipelineServeSpec, ttft: Histogram, tpot: Histogram
) -> Finding:
    """SLOMet, by the merged percentiles.

    Where no request ended there is nothing to merge, and replicas' own verdicts hold: one whose
    prompts wait in vain says by it what no latency shows.

    Args:
        counted: reports whose measurements are fresh.
        spec: of the resource.
        ttft: all of theirs together.
        tpot: likewise.
    """
    if not counted:
        return Finding(Answer.UNKNOWN, _why_nothing(spec))
    busy = [report for report in counted if report.status.num_requests]
    if not busy:
        if any(_answer(report.status.slo_met) is Answer.NO for report in counted):
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


def slo_feasible(heard: tuple[Report, ...], spec: PipelineServeSpec) -> Finding:
    """SLOFeasible."""
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


def _unheard(replicas: Replicas, spec: PipelineServeSpec) -> Finding:
    message = f"{_named(replicas.missing)}: not heard" if replicas.missing else ""
    return Finding(Answer.UNKNOWN, _why_nothing(spec), message)


def _why_nothing(spec: PipelineServeSpec) -> LinkReason:
    return LinkReason.NO_REPORT if spec.replicas else LinkReason.SCALED_TO_ZERO


def _answer(verdict: "pb.Verdict.ValueType") -> Answer:
    """A verdict that is not known here, of a later release, is no answer."""
    return _ANSWERS.get(verdict, Answer.UNKNOWN)


def _indices(reports: Iterable[Report]) -> tuple[int, ...]:
    return tuple(report.replica_index for report in reports)


def _named(indices: tuple[int, ...]) -> str:
    if len(indices) == 1:
        return f"replica {indices[0]}"
    shown = ", ".join(map(str, indices[:10]))
    return f"replicas {shown}" + (f" and {len(indices) - 10} more" if len(indices) > 10 else "")
