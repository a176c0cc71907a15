"""From the words of several replicas to what is said of their resource. Pure.

Percentiles come of merged histograms, never of averaged percentiles: two replicas of which one is
slow and busy are as slow as the requests that went there.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from pipelineserve.api import PipelineServeSpec
from pipelineserve.api.targets import LatencyTarget
from pipelineserve.policy.control.histograms import Histogram, merge_all
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_operator import verdicts
from pipelineserve_operator.attend.statuses import histogram_of
from pipelineserve_operator.findings import ResourceReport
from pipelineserve_operator.link import Report
from pipelineserve_operator.verdicts import Replicas

# A sidecar whose stream ended is back within this, or it counts as gone.
RECONNECT_S = 20.0
# After the operator began, sidecars may take as long as their longest pause to come back.
SETTLING_S = 60.0
_PERCENTILE_WITHOUT_TARGET = 90


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
        connected=verdicts.connected(replicas, spec),
        effective=verdicts.effective(replicas, spec),
        fresh=verdicts.fresh(replicas, spec),
        slo_met=verdicts.slo_met(fresh, spec, ttft, tpot),
        slo_feasible=verdicts.slo_feasible(heard, spec),
    )


def _replicas(reports: Iterable[Report], num_replicas: int, now_s: float) -> Replicas:
    latest: dict[int, Report] = {}
    for report in sorted(reports, key=lambda one: (one.is_connected, one.heard_at_s)):
        if report.replica_index < num_replicas and _counts(report, now_s):
            latest[report.replica_index] = report
    heard = tuple(latest[index] for index in sorted(latest))
    return Replicas(
        heard=heard,
        missing=tuple(index for index in range(num_replicas) if index not in latest),
        ended_at_s=tuple(report.heard_at_s for report in heard if not report.is_connected),
    )


def _counts(report: Report, now_s: float) -> bool:
    return report.is_connected or now_s - report.heard_at_s < RECONNECT_S


def _measured_s(histogram: Histogram, target: LatencyTarget | None) -> float | None:
    return histogram.percentile(target.percentile if target else _PERCENTILE_WITHOUT_TARGET)


def _of_all(replicas: Replicas, generation: Callable[[pb.ControllerStatus], int]) -> int | None:
    if replicas.missing:
        return None
    return min((generation(report.status) for report in replicas.heard), default=None)


def _commonest(reasons: Iterable[str]) -> str:
    """Of those that are given as often, the one of the first replica."""
    counts = Counter(reason for reason in reasons if reason)
    return max(counts, key=lambda reason: counts[reason], default="")
