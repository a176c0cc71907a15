"""Names of everything that belongs to a resource.

Every name ends in a word of ours, so that no two resources of a namespace can ever want the same.
A name that would be too long keeps its beginning and gets a hash.
"""

import hashlib
from dataclasses import dataclass

# The StatefulSet controller writes a name and a hash of ten into one label of a pod.
_MAX_SET_NAME = 52
_MAX_LABEL = 63
_HASH_CHARACTERS = 8
_WORKERS = "-w"


@dataclass(frozen=True, slots=True)
class Group:
    """One start of one replica: its pods live and die together.

    Attributes:
        replica_index: from 0.
        epoch: from 0; higher with each start anew, so that pods of an earlier one are told apart.
    """

    replica_index: int
    epoch: int = 0


def bounded(name: str, most: int) -> str:
    """`name`, or its beginning and a hash of it if it has more than `most` characters."""
    if len(name) <= most:
        return name
    return f"{name[: most - _HASH_CHARACTERS - 1].rstrip('-.')}-{_hash(name)}"


def leader_set(name: str, group: Group) -> str:
    """The StatefulSet of a group's leader, which gives the group its name."""
    own = f"{name}-r{group.replica_index}-e{group.epoch}"
    return bounded(own, _MAX_SET_NAME - len(_WORKERS))


def worker_set(leader_set_name: str) -> str:
    """The StatefulSet of a group's other pods."""
    return f"{leader_set_name}{_WORKERS}"


def pod(set_name: str, ordinal: int) -> str:
    """A pod of a StatefulSet, which is also the pod's own host name."""
    return f"{set_name}-{ordinal}"


def group_key(leader_set_name: str) -> str:
    """The Secret with the group's key; whoever applies makes its bytes."""
    return f"{leader_set_name}-key"


def members(name: str) -> str:
    """What is about all pods: headless Service, ServiceAccount, NetworkPolicy, and so on."""
    return _dns_label(f"{name}-pods")


def api(name: str) -> str:
    """The Service in front of the API."""
    return _dns_label(f"{name}-api")


def control(name: str) -> str:
    """The ConfigMap of what may change while pods run."""
    return f"{name}-control"


def targets(name: str) -> str:
    """The alert rules."""
    return f"{name}-targets"


def template(name: str, revision: str) -> str:
    """The ControllerRevision that keeps a group's template."""
    return bounded(f"{name}-{revision}", _MAX_LABEL)


def _dns_label(name: str) -> str:
    """A Service's name starts with a letter, a resource's may start with a digit."""
    if name[0].isalpha():
        return bounded(name, _MAX_LABEL)
    return bounded(f"p{_hash(name)}-{name}", _MAX_LABEL)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARACTERS]
