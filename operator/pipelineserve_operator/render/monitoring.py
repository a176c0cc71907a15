"""What Prometheus scrapes and warns of, for clusters that know its operator's kinds."""

import re
from collections.abc import Iterator

from pipelineserve import metrics
from pipelineserve.api import LatencyTarget, MonitoringSpec
from pipelineserve.metrics import Metric
from pipelineserve_operator.render import labels, names
from pipelineserve_operator.render.metadata import owned
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject

_API_VERSION = "monitoring.coreos.com/v1"
_INTERVAL = re.compile(r"([0-9]+)(ms|s|m)")
_SECONDS_OF = {"ms": 0.001, "s": 1.0, "m": 60.0}
# A rate over fewer scrapes is a guess.
_LEAST_SCRAPES = 4


def monitors(subject: Subject, settings: OperatorSettings) -> list[JsonObject]:
    """A PodMonitor and a PrometheusRule, as far as they are wanted and known."""
    if not subject.spec.monitoring.enabled:
        return []
    pod_monitors = [_pod_monitor(subject, settings)] if settings.has_pod_monitors else []
    rules = [_prometheus_rule(subject, settings)] if settings.has_prometheus_rules else []
    return [*pod_monitors, *rules]


def _pod_monitor(subject: Subject, settings: OperatorSettings) -> JsonObject:
    monitoring = subject.spec.monitoring
    return {
        "apiVersion": _API_VERSION,
        "kind": "PodMonitor",
        "metadata": owned(subject, settings, names.members(subject.name), monitoring.labels),
        "spec": {
            # Only leaders serve metrics, those of their stages included.
            "selector": {"matchLabels": labels.selecting_leaders(subject.name)},
            "podTargetLabels": [labels.NAME, labels.REPLICA],
            "podMetricsEndpoints": [
                {"port": port, "path": "/metrics", "interval": monitoring.interval}
                for port in ("api", "page")
            ],
        },
    }


def _prometheus_rule(subject: Subject, settings: OperatorSettings) -> JsonObject:
    return {
        "apiVersion": _API_VERSION,
        "kind": "PrometheusRule",
        "metadata": owned(
            subject, settings, names.targets(subject.name), subject.spec.monitoring.labels
        ),
        "spec": {
            "groups": [
                {
                    "name": f"pipelineserve.{subject.namespace}.{subject.name}",
                    "rules": [*_target_rules(subject), *_state_rules(subject)],
                }
            ]
        },
    }


def _target_rules(subject: Subject) -> Iterator[JsonObject]:
    """A percentile of all replicas together above its target for as long as it is judged over."""
    slo = subject.spec.slo
    targets = (("TTFT", metrics.TTFT, slo.ttft), ("TPOT", metrics.TPOT, slo.tpot))
    for name, metric, target in targets:
        if target is not None:
            yield _target_rule(subject, name, metric, target)


def _target_rule(subject: Subject, name: str, metric: Metric, target: LatencyTarget) -> JsonObject:
    window_s = subject.spec.slo.window_seconds
    range_s = max(window_s, _least_range_s(subject.spec.monitoring))
    rate = f"rate({metric.name}_bucket{_selector(subject)}[{range_s}s])"
    quantile = f"histogram_quantile({target.percentile / 100}, sum by (le) ({rate}))"
    return _alert(
        subject,
        f"PipelineServe{name}AboveTarget",
        f"{quantile} > {target.target_s}",
        for_s=window_s,
        severity="warning",
        summary=f"P{target.percentile} of {name} is above its target of "
        f"{target.milliseconds} ms; see status.conditions SLOFeasible for what could be met",
    )


def _state_rules(subject: Subject) -> list[JsonObject]:
    own = _selector(subject)
    return [
        _alert(
            subject,
            "PipelineServeTargetsInfeasible",
            f"min({metrics.SLO_FEASIBLE.name}{own}) == 0",
            for_s=600,
            severity="warning",
            summary="no chunk size can meet the targets at the present load; "
            "add replicas or raise the targets",
        ),
        _alert(
            subject,
            "PipelineServeControlIneffective",
            f"min({metrics.CONTROL_EFFECTIVE.name}{own}) == 0",
            for_s=600,
            severity="info",
            summary="a replica runs on its static chunk; see the controller's log",
        ),
        _alert(
            subject,
            "PipelineServeStagesRestarted",
            f"sum(increase({metrics.RECOVERIES.name}{own}[15m])) > 0",
            for_s=0,
            severity="warning",
            summary="stages failed and were started anew; requests were kept, and paused",
        ),
        _alert(
            subject,
            "PipelineServeRequestsDoNotAddUp",
            f"sum(increase({metrics.ACCOUNTING_FAULTS.name}{own}[15m])) > 0",
            for_s=0,
            severity="critical",
            summary="the engine lost count of its requests; its log has the numbers",
        ),
    ]


def _alert(
    subject: Subject, name: str, expression: str, *, for_s: int, severity: str, summary: str
) -> JsonObject:
    return {
        "alert": name,
        "expr": expression,
        "for": f"{for_s}s",
        "labels": {
            "severity": severity,
            "namespace": subject.namespace,
            "pipelineserve": subject.name,
        },
        "annotations": {"summary": f"PipelineServe {subject.namespace}/{subject.name}: {summary}"},
    }


def _selector(subject: Subject) -> str:
    """The series of one resource, by the labels that the PodMonitor's targets have."""
    name_label = re.sub(r"[^a-zA-Z0-9_]", "_", labels.NAME)
    return f'{{namespace="{subject.namespace}",{name_label}="{subject.name}"}}'


def _least_range_s(monitoring: MonitoringSpec) -> int:
    match = _INTERVAL.fullmatch(monitoring.interval)
    if match is None:
        raise ValueError(f"expected an interval such as 15s, got {monitoring.interval!r}")
    return max(1, round(_LEAST_SCRAPES * int(match[1]) * _SECONDS_OF[match[2]]))
