"""What of a look at a resource is told as Events: pure."""

from collections.abc import Iterator

from pipelineserve.api.status import ConditionStatus, ConditionType, PipelineServeStatus
from pipelineserve_operator.cluster import Kind, kind_of
from pipelineserve_operator.events import EventReason, Told
from pipelineserve_operator.plan.planning import Plan
from pipelineserve_operator.render import JsonObject

_TRANSITIONS = {
    (ConditionType.READY, ConditionStatus.TRUE): EventReason.READY,
    (ConditionType.READY, ConditionStatus.FALSE): EventReason.NOT_READY,
    (ConditionType.STALLED, ConditionStatus.TRUE): EventReason.STALLED,
    (ConditionType.SLO_FEASIBLE, ConditionStatus.FALSE): EventReason.TARGETS_INFEASIBLE,
}


def told_of_plan(plan: Plan, resource: JsonObject) -> Iterator[Told]:
    """What was done, without what is done again in every look until it is finished."""
    written = {one.document["metadata"]["name"] for one in plan.sets}
    if written:
        for started in plan.steps.started:
            text = f"replica {started.group.replica_index} starts: {started.cause.value}"
            yield Told(EventReason.GROUP_STARTED, text)
    for drained in plan.steps.drained:
        if any(one.name in written for one in drained.seen.sets):
            text = f"replica {drained.seen.group.replica_index} drains: {drained.cause.value}"
            yield Told(EventReason.GROUP_DRAINING, text)
    for removed in plan.steps.removed:
        text = f"replica {removed.seen.group.replica_index} goes: {removed.cause.value}"
        yield Told(EventReason.GROUP_REMOVED, text)
    if is_of_this_generation(resource):
        yield from _repaired(plan)


def told_of_status(status: PipelineServeStatus, resource: JsonObject) -> Iterator[Told]:
    """Conditions that people wait for, or must know of, when they change."""
    before = {
        one["type"]: one["status"] for one in (resource.get("status") or {}).get("conditions", ())
    }
    for condition in status.conditions:
        reason = _TRANSITIONS.get((condition.type, condition.status))
        is_news = before.get(condition.type.value) != condition.status.value
        if reason is not None and is_news:
            yield Told(reason, f"{condition.reason}: {condition.message}".rstrip(": "))


def is_of_this_generation(resource: JsonObject) -> bool:
    """Whether the resource was looked at since its last edit."""
    seen = (resource.get("status") or {}).get("observedGeneration")
    return bool(seen == resource["metadata"]["generation"])


def _repaired(plan: Plan) -> Iterator[Told]:
    """Nobody has edited the resource, so somebody has edited these."""
    drained = {one.name for step in plan.steps.drained for one in step.seen.sets}
    for write in (*plan.shared, *plan.sets):
        kind, name = kind_of(write.document), write.document["metadata"]["name"]
        if not write.is_new and name not in drained and kind is not Kind.CONTROLLER_REVISION:
            yield Told(EventReason.REPAIRED, f"{kind.kind} {name} was not as it should be")
