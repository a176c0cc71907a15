"""The whole status of a resource, from its situation and what it said before."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pipelineserve.api import API_VERSION, KIND
from pipelineserve.api.status import (
    MAX_PIPELINES,
    Condition,
    ConditionType,
    PipelineServeStatus,
    PipelineStatus,
    PolicyStatus,
    SloStatus,
)
from pipelineserve_operator.conditions.figures import figures_of, next_figures, summary_of
from pipelineserve_operator.conditions.situation import Situation
from pipelineserve_operator.conditions.verdicts import Verdict, verdicts
from pipelineserve_operator.findings import ResourceReport
from pipelineserve_operator.moments import text_of
from pipelineserve_operator.plan.replicas import ReplicaSeen
from pipelineserve_operator.render import JsonObject, endpoint, leader_selector

_MAX_MESSAGE = 4000
_SOURCE = "Attend"
# Of conditions that only sidecars decide: what was known before holds while they come back.
_OF_SIDECARS = frozenset(
    {
        ConditionType.CONTROLLER_CONNECTED,
        ConditionType.CONTROL_EFFECTIVE,
        ConditionType.METRICS_FRESH,
        ConditionType.SLO_MET,
        ConditionType.SLO_FEASIBLE,
    }
)


@dataclass(frozen=True, slots=True)
class Said:
    """A status to say.

    Attributes:
        look_again_s: when something in it changes by itself; None for never.
    """

    status: PipelineServeStatus
    look_again_s: float | None


def status_of(situation: Situation, figures_written_s: float | None) -> Said:
    """What the status is to say.

    Args:
        situation: of the resource.
        figures_written_s: when this process last wrote figures of the resource.
    """
    old = situation.view.resource.get("status") or {}
    report = situation.report
    newest = figures_of(report) if report is not None and report.is_conclusive else None
    figures = next_figures(_old_figures(old), newest, figures_written_s, situation.now_s)
    deadlines_s = [at_s for _, at_s in situation.deadlines_s() if at_s > situation.now_s]
    moments_s = [*deadlines_s, *([figures.look_again_s] if figures.look_again_s else [])]
    status = PipelineServeStatus(
        observed_generation=situation.generation,
        conditions=_conditions(situation, old),
        replicas=situation.num_existing,
        ready_replicas=situation.num_serving,
        updated_replicas=situation.num_updated,
        slo=figures.slo,
        policy=_policy(report),
        pipelines=_pipelines(situation),
        **_of_spec(situation, figures.slo),
    )
    return Said(status, min(moments_s, default=None))


def document_of(status: PipelineServeStatus, resource: JsonObject) -> JsonObject:
    """For a server-side apply of the status; it fails if the resource is another one by then."""
    metadata = resource["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
        "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def is_said(document: JsonObject, resource: JsonObject) -> bool:
    """Whether the resource's status says all of this and, of what is ours, nothing else."""
    said = resource.get("status") or {}
    known = {kind.value for kind in ConditionType}
    ours = [one for one in said.get("conditions", ()) if one["type"] in known]
    return _comparable({**said, "conditions": ours}) == _comparable(document["status"])


def _comparable(status: Mapping[str, Any]) -> dict[str, Any]:
    """Lists by their keys: the server keeps an order of its own."""
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    pipelines = {
        one["replica"]: {key: value for key, value in one.items() if value != []}
        for one in status.get("pipelines", ())
    }
    rest = {key: value for key, value in status.items() if value not in ([], {})}
    return {**rest, "conditions": conditions, "pipelines": pipelines}


def _of_spec(situation: Situation, slo: SloStatus | None) -> dict[str, Any]:
    subject = situation.subject
    if subject is None:
        return {}
    num_wanted = subject.spec.replicas
    return {
        "selector": leader_selector(subject.name),
        "endpoint": endpoint(subject),
        "mode": subject.spec.control.mode,
        "summary": summary_of(slo, subject.spec.slo, situation.num_serving, num_wanted),
    }


def _conditions(situation: Situation, old: JsonObject) -> tuple[Condition, ...]:
    before = {one["type"]: one for one in old.get("conditions", ())}
    is_settling = situation.report is not None and not situation.report.is_conclusive
    return tuple(
        _condition(
            kind,
            verdict,
            before.get(kind.value),
            situation,
            keeps=is_settling and kind in _OF_SIDECARS,
        )
        for kind, verdict in verdicts(situation).items()
    )


def _condition(
    kind: ConditionType,
    verdict: Verdict,
    before: JsonObject | None,
    situation: Situation,
    *,
    keeps: bool,
) -> Condition:
    """The time stays while the status does."""
    if before is not None and keeps:
        kept = _old_condition(before)
        if kept is not None:
            return kept
    is_same = before is not None and before.get("status") == verdict.status.value
    since = before.get("lastTransitionTime") if before is not None and is_same else None
    return Condition(
        type=kind,
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message[:_MAX_MESSAGE],
        last_transition_time=since or text_of(situation.now_s),
        observed_generation=situation.generation,
    )


def _old_condition(before: JsonObject) -> Condition | None:
    try:
        return Condition.model_validate_json(_text(before), by_alias=True, by_name=False)
    except ValidationError:
        return None  # somebody else wrote it; it is said anew


def _old_figures(old: JsonObject) -> SloStatus | None:
    if "slo" not in old:
        return None
    try:
        return SloStatus.model_validate_json(_text(old["slo"]), by_alias=True, by_name=False)
    except ValidationError:
        return None  # likewise


def _policy(report: ResourceReport | None) -> PolicyStatus | None:
    if report is None:
        return None
    return PolicyStatus(
        generation=report.received_generation,
        applied_generation=report.applied_generation,
        source=_SOURCE if report.received_generation is not None else None,
        reason=report.reason or None,
    )


def _pipelines(situation: Situation) -> tuple[PipelineStatus, ...]:
    applied = dict(situation.report.applied) if situation.report is not None else {}
    spec = situation.subject.spec if situation.subject is not None else None
    window_s = float(spec.recovery.window_seconds) if spec is not None else 0.0
    return tuple(
        _pipeline(one, applied.get(one.index), situation.now_s - window_s)
        for one in situation.wanted[:MAX_PIPELINES]
    )


def _pipeline(replica: ReplicaSeen, applied: int | None, since_s: float) -> PipelineStatus:
    shown = replica.serving or replica.newest
    if shown is None:
        return PipelineStatus(replica=replica.index)
    nodes = dict.fromkeys(pod.node for pod in shown.pods if pod.node and not pod.is_gone_soon)
    return PipelineStatus(
        replica=replica.index,
        epoch=shown.group.epoch,
        ready=shown.serves,
        applied_generation=applied,
        restarts=sum(at_s > since_s for at_s in shown.restarts_s),
        nodes=tuple(nodes),
    )


def _text(document: JsonObject) -> str:
    return json.dumps(document)
