"""What is to be written, in order: pure, from a view and what is rendered of its resource."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pipelineserve.errors import InvalidInputError
from pipelineserve_operator.cluster import Kind, kind_of
from pipelineserve_operator.observed import DRAINING, RESTARTS, SetSeen, View, restarts_text
from pipelineserve_operator.plan.drift import has_drifted
from pipelineserve_operator.plan.replicas import GroupSeen, ReplicaSeen, replicas_seen
from pipelineserve_operator.plan.rollout import Drained, Started, Steps, next_steps
from pipelineserve_operator.plan.templates import Templates, templates_of
from pipelineserve_operator.render import (
    Group,
    GroupTemplate,
    JsonObject,
    OperatorSettings,
    Subject,
    group_objects,
    labels,
    names,
    shared_objects,
)

_LEFT_OVER_GOES = (
    Kind.DISRUPTION_BUDGET,
    Kind.POD_MONITOR,
    Kind.PROMETHEUS_RULE,
    Kind.CONTROLLER_REVISION,
)


@dataclass(frozen=True, slots=True)
class Write:
    """An object to apply.

    Attributes:
        is_new: the view does not have it.
    """

    document: JsonObject
    is_new: bool


@dataclass(frozen=True, slots=True)
class Deletion:
    """An object to delete; without a uid, whichever has the name."""

    kind: Kind
    name: str
    uid: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, in the order of the fields.

    Attributes:
        unreadable: templates that cannot be read, and cannot be written over either.
        shared: what pods need before they start.
        key_secrets: keys of groups that are started, without their bytes.
        sets: of groups.
        deletions: of what is left over.
        revision: of the rolling fields; None if no template can be made of them.
        refusal: why not.
        replicas: as they are now.
        steps: why groups are touched.
    """

    unreadable: tuple[Deletion, ...]
    shared: tuple[Write, ...]
    key_secrets: tuple[JsonObject, ...]
    sets: tuple[Write, ...]
    deletions: tuple[Deletion, ...]
    revision: str | None
    refusal: InvalidInputError | None
    replicas: tuple[ReplicaSeen, ...]
    steps: Steps

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be written."""
        return not any((self.unreadable, self.shared, self.key_secrets, self.sets, self.deletions))


def plan_for(view: View, subject: Subject, settings: OperatorSettings, now_s: float) -> Plan:
    """What is to be done now; empty if everything is as it should be."""
    templates = templates_of(view, subject, settings)
    view = _without(view, templates.unreadable)
    replicas = replicas_seen(view, subject.spec.replicas)
    steps = next_steps(replicas, subject.spec, templates.revision, now_s)
    shared = [*shared_objects(subject, settings), *_revisions(templates, steps)]
    wanted = {(kind_of(one), one["metadata"]["name"]) for one in shared}
    return Plan(
        unreadable=tuple(_deletion(Kind.CONTROLLER_REVISION, one) for one in templates.unreadable),
        shared=_writes(view, shared),
        key_secrets=tuple(_keys(subject, templates, steps.started)),
        sets=_writes(view, _sets(subject, templates, steps)),
        deletions=(*_of_groups(templates, steps), *_left_over(view, wanted)),
        revision=templates.revision,
        refusal=templates.refusal,
        replicas=replicas,
        steps=steps,
    )


def _writes(view: View, wanted: Iterable[JsonObject]) -> tuple[Write, ...]:
    return tuple(write for one in wanted for write in _write(view, one))


def _write(view: View, wanted: JsonObject) -> Iterator[Write]:
    live = view.child(kind_of(wanted), wanted["metadata"]["name"])
    if live is None:
        yield Write(wanted, is_new=True)
    elif has_drifted(wanted, live):
        yield Write(wanted, is_new=False)


def _sets(subject: Subject, templates: Templates, steps: Steps) -> Iterator[JsonObject]:
    """Of every group that is to be there; of one whose template is lost, nothing is said."""
    for seen in steps.kept:
        template = templates.by_revision.get(seen.revision)
        if template is not None:
            yield from _noted(subject, template, seen.group, seen.restarts_s)
    for drained in steps.drained:
        yield from _without_pods(subject, templates, drained)
    for started in steps.started:
        template = _template_of(started, templates)
        if template is not None:
            yield from _noted(subject, template, started.group, started.restarts_s)


def _template_of(started: Started, templates: Templates) -> GroupTemplate | None:
    """Its own, or today's if that is lost; None if neither is there."""
    today = templates.by_revision.get(templates.revision or "")
    return templates.by_revision.get(started.revision, today)


def _noted(
    subject: Subject, template: GroupTemplate, group: Group, restarts_s: tuple[float, ...]
) -> Iterator[JsonObject]:
    for one in group_objects(subject, template, [group]):
        yield _annotated(one, {RESTARTS: restarts_text(restarts_s)} if restarts_s else {})


def _without_pods(subject: Subject, templates: Templates, drained: Drained) -> Iterator[JsonObject]:
    """The group's sets with no pod wanted, and why."""
    seen = drained.seen
    template = templates.by_revision.get(seen.revision)
    if template is None:
        return
    for one in _noted(subject, template, seen.group, seen.restarts_s):
        emptied = {**one, "spec": {**one["spec"], "replicas": 0}}
        yield _annotated(emptied, {DRAINING: drained.cause.value})


def _annotated(one: JsonObject, annotations: dict[str, str]) -> JsonObject:
    if not annotations:
        return one
    metadata = one["metadata"]
    every = {**metadata.get("annotations", {}), **annotations}
    return {**one, "metadata": {**metadata, "annotations": every}}


def _keys(
    subject: Subject, templates: Templates, started: Iterable[Started]
) -> Iterator[JsonObject]:
    """Secrets without their bytes, for groups whose pods must trust each other."""
    for one in started:
        template = _template_of(one, templates)
        if template is not None and template.is_spread:
            name = names.group_key(names.leader_set(subject.name, one.group))
            yield {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": name,
                    "namespace": subject.namespace,
                    "labels": labels.of_member(subject.name, "key"),
                    "ownerReferences": [subject.owner_reference],
                },
                "type": "Opaque",
            }


def _revisions(templates: Templates, steps: Steps) -> list[JsonObject]:
    """Of today's template, and of each that a group still has."""
    used = {seen.revision for seen in steps.kept}
    used |= {drained.seen.revision for drained in steps.drained}
    used |= {started.revision for started in steps.started}
    if templates.revision is not None:
        used.add(templates.revision)
    return [one for revision, one in templates.documents.items() if revision in used]


def _of_groups(templates: Templates, steps: Steps) -> Iterator[Deletion]:
    """Key first, then workers, then the leader: what is left is found again by its leader's set.

    A group whose template is lost cannot be said anew without pods, so it is not drained: it goes.
    """
    lost = [one.seen for one in steps.drained if one.seen.revision not in templates.by_revision]
    for seen in (*(removed.seen for removed in steps.removed), *lost):
        yield from _key_of(seen)
        for one in reversed(seen.sets):
            yield Deletion(Kind.STATEFUL_SET, one.name, one.uid)


def _key_of(seen: GroupSeen) -> Iterator[Deletion]:
    if len(seen.sets) > 1:
        leader: SetSeen = seen.sets[0]
        yield Deletion(Kind.SECRET, names.group_key(leader.name))


def _left_over(view: View, wanted: set[tuple[Kind, str]]) -> Iterator[Deletion]:
    for kind in _LEFT_OVER_GOES:
        for one in view.children.get(kind, ()):
            if (kind, one["metadata"]["name"]) not in wanted:
                yield _deletion(kind, one)


def _deletion(kind: Kind, one: JsonObject) -> Deletion:
    return Deletion(kind, one["metadata"]["name"], one["metadata"]["uid"])


def _without(view: View, unreadable: tuple[JsonObject, ...]) -> View:
    kept = (one for one in view.children.get(Kind.CONTROLLER_REVISION, ()) if one not in unreadable)
    return replace(view, children={**view.children, Kind.CONTROLLER_REVISION: tuple(kept)})
