"""The StatefulSets of one group: its leader's, and its workers' if there are any.

Their names and labels say replica and epoch; everything else is the template's. A changed template
changes no pod that is there (`OnDelete`); the operator starts a group anew as a whole.
"""

import copy
from dataclasses import dataclass

from pipelineserve_operator.render import labels, names
from pipelineserve_operator.render.labels import Role
from pipelineserve_operator.render.metadata import named
from pipelineserve_operator.render.names import Group
from pipelineserve_operator.render.subject import JsonObject, Subject
from pipelineserve_operator.render.templates import GroupTemplate
from pipelineserve_operator.render.volumes import GROUP_KEY_VOLUME


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a role's StatefulSet is; workers count from 1, so that an ordinal is a pod's place."""

    name: str
    num_pods: int
    first_ordinal: int


def stateful_sets(subject: Subject, template: GroupTemplate, group: Group) -> list[JsonObject]:
    """One or two sets, the leader's first."""
    leader = names.leader_set(subject.name, group)
    shapes = {
        Role.LEADER: _Shape(leader, 1, 0),
        Role.WORKER: _Shape(names.worker_set(leader), template.num_workers, 1),
    }
    return [
        _stateful_set(subject, template, group, role, shapes[role])
        for role in Role
        if role in template.pods
    ]


def _stateful_set(
    subject: Subject, template: GroupTemplate, group: Group, role: Role, shape: _Shape
) -> JsonObject:
    selecting = labels.selecting_set(subject.name, group, role)
    group_name = names.leader_set(subject.name, group)
    own = {**selecting, labels.REVISION: template.revision, labels.GROUP: group_name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": named(
            subject, shape.name, {**labels.of_member(subject.name, role.value), **own}
        ),
        "spec": {
            "serviceName": names.members(subject.name),
            "replicas": shape.num_pods,
            "ordinals": {"start": shape.first_ordinal},
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selecting},
            "template": _pod_of(template.pods[role], own, names.group_key(group_name)),
        },
    }


def _pod_of(template: JsonObject, own_labels: dict[str, str], key_secret: str) -> JsonObject:
    """The template with what only one group has."""
    pod = copy.deepcopy(template)
    pod["metadata"]["labels"].update(own_labels)
    for volume in pod["spec"]["volumes"]:
        if volume["name"] == GROUP_KEY_VOLUME:
            volume["secret"]["secretName"] = key_secret
    return pod
