"""Labels by which things are found. Selectors use only those that never change."""

from enum import Enum

from pipelineserve.api.placement import OWN_DOMAIN
from pipelineserve_operator.render.names import Group

NAME = f"{OWN_DOMAIN}/name"
REPLICA = f"{OWN_DOMAIN}/replica"
EPOCH = f"{OWN_DOMAIN}/epoch"
ROLE = f"{OWN_DOMAIN}/role"
GROUP = f"{OWN_DOMAIN}/group"
REVISION = f"{OWN_DOMAIN}/revision"


class Role(Enum):
    """What a pod is in its group."""

    LEADER = "leader"
    WORKER = "worker"


def selecting_all(name: str) -> dict[str, str]:
    """Every pod of a resource."""
    return {NAME: name}


def selecting_leaders(name: str) -> dict[str, str]:
    """The pods that serve the API, one per replica."""
    return {NAME: name, ROLE: Role.LEADER.value}


def selecting_set(name: str, group: Group, role: Role) -> dict[str, str]:
    """The pods of one StatefulSet."""
    return {
        NAME: name,
        REPLICA: str(group.replica_index),
        EPOCH: str(group.epoch),
        ROLE: role.value,
    }


def leader_selector(name: str) -> str:
    """`selecting_leaders` as text, for the scale subresource."""
    return ",".join(f"{key}={value}" for key, value in selecting_leaders(name).items())


def of_object(name: str, version: str) -> dict[str, str]:
    """What every object that is no pod carries."""
    known = {"app.kubernetes.io/version": version} if version else {}
    return {**of_member(name, "serving"), **known}


def of_member(name: str, component: str) -> dict[str, str]:
    """What every pod carries, and its set; no version, or each upgrade would roll it."""
    return {
        "app.kubernetes.io/name": "pipelineserve",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "pipelineserve",
        "app.kubernetes.io/managed-by": "pipelineserve-operator",
        NAME: name,
    }
