"""What Prometheus scrapes and warns of, for clusters that know its operator's kinds."""

import re
from collections.abc import Iterable, Iterator

from pipelineserve import metrics
from pipelineserve.api import EngineType, LatencyTarget, MonitoringSpec
from pipelineserve.counterparts import OF_SGLANG, Counterpart
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
                    **_of_engine(subject),
                }
            ]
        },
    }


def _of_engine(subject: Subject) -> JsonObject:
    """The group's rules; SGLang's series get our names first, by which alerts then read them."""
    alerts = [*_target_rules(subject), *_state_rules(subject)]
    match subject.spec.engine.type:
        case EngineType.TORCH:
            return {"rules": [*alerts, *_torch_rules(subject)]}
        case EngineType.SGLANG:
            recorded = [rule for one in OF_SGLANG for rule in _recordings(subject, one)]
            # As often as they are scraped, since alerts take rates of them.
            interval = subject.spec.monitoring.interval
            return {"interval": interval, "rules": [*recorded, *alerts, *_sglang_rules(subject)]}


def _recordings(subject: Subject, counterpart: Counterpart) -> Iterator[JsonObject]:
    """Each series of a family of SGLang's under our name, one for each pod."""
    kept = ["namespace", "pod", *map(_as_label, (labels.NAME, labels.REPLICA))]
    for ours, theirs in counterpart.series:
        by = [*kept, "le"] if ours.endswith("_bucket") else kept
        series = f"{theirs}{_selector(subject, counterpart.labels)}"
        yield {"record": ours, "expr": f"sum by ({', '.join(by)}) ({series})"}


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
    ]


def _torch_rules(subject: Subject) -> list[JsonObject]:
    own = _selector(subject)
    return [
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


def _sglang_rules(subject: Subject) -> list[JsonObject]:
    """What only the add-on can have; a stage of SGLang's that fails is its container's restart."""
    return [
        _alert(
            subject,
            "PipelineServeEngineInactive",
            f"min({metrics.CONTROL_ACTIVE.name}{_selector(subject)}) == 0",
            for_s=300,
            severity="warning",
            summary="an engine cannot be controlled and will not be; see status.conditions "
            "ControlEffective for the reason",
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


def _selector(subject: Subject, more: Iterable[tuple[str, str]] = ()) -> str:
    """The series of one resource, by the labels that the PodMonitor's targets have, and more."""
    own = (("namespace", subject.namespace), (_as_label(labels.NAME), subject.name))
    return "{" + ",".join(f'{name}="{value}"' for name, value in (*own, *more)) + "}"


def _as_label(key: str) -> str:
    """What a pod's label is called on its series."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)


def _least_range_s(monitoring: MonitoringSpec) -> int:
    match = _INTERVAL.fullmatch(monitoring.interval)
    if match is None:
        raise ValueError(f"expected an interval such as 15s, got {monitoring.interval!r}")
    return max(1, round(_LEAST_SCRAPES * int(match[1]) * _SECONDS_OF[match[2]]))
