"""What the cluster holds of one resource, as one frozen view."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipelineserve_operator.cluster import Kind
from pipelineserve_operator.moments import seconds_at
from pipelineserve_operator.render import Group, JsonObject, Role, labels
from pipelineserve_operator.render.volumes import GROUP_KEY_VOLUME

DRAINING = "pipelineserve.dev/draining"
"""Annotation of a set whose pods are to end: why."""
RESTARTS = "pipelineserve.dev/restarts"
"""Annotation of a set: when groups of this replica were started anew because they had failed."""

_SIDECAR = "controller"
_NOT_STARTED = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class ContainerSeen:
    """One container of a pod.

    Attributes:
        waiting_reason: why it does not run, in Kubernetes' word; empty while it does, or did.
    """

    name: str
    is_ready: bool
    num_restarts: int
    waiting_reason: str
    waiting_message: str

    @property
    def is_sidecar(self) -> bool:
        """Whether a model is served without it."""
        return self.name == _SIDECAR


@dataclass(frozen=True, slots=True)
class PodSeen:
    """One pod of a group.

    Attributes:
        index: its place in the group: 0 is the leader's.
        ready_changed_s: when it became ready or ceased to be; None before it was ever judged.
        ends_s: by when it must have ended; None while nobody has asked it to.
        unscheduled_message: why it has no node, in the scheduler's words; empty if it has, or if
            nobody has tried yet.
        key_secret: Secret with the key of its group; empty if it needs none.
        lacks_key: it waits for that Secret, which is not there.
    """

    name: str
    uid: str
    group: Group
    role: Role
    revision: str
    index: int
    node: str
    is_ready: bool
    ready_changed_s: float | None
    ends_s: float | None
    is_unschedulable: bool
    unscheduled_message: str
    containers: tuple[ContainerSeen, ...]
    key_secret: str = ""
    lacks_key: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether its node does not answer: then it is unready although no container is.

        A kubelet says of an unready pod which container is not ready. The one who finds a
        node silent marks its pods and cannot know of containers.
        """
        return (
            not self.is_ready and bool(self.containers) and all(c.is_ready for c in self.containers)
        )

    @property
    def is_gone_soon(self) -> bool:
        """Whether it has been asked to end."""
        return self.ends_s is not None

    @property
    def is_being_prepared(self) -> bool:
        """Whether its node fetches images and mounts volumes: no container has begun."""
        is_bare = bool(self.containers) and all(
            one.waiting_reason in _NOT_STARTED for one in self.containers
        )
        return bool(self.node) and not self.is_gone_soon and is_bare


@dataclass(frozen=True, slots=True)
class SetSeen:
    """One StatefulSet of a group.

    Attributes:
        draining: why its pods are to end, as its annotation says; empty while they are not.
        restarts_s: when failed groups of this replica were started anew.
        num_pods: that it has; less than wanted while pods are being made or refused.
    """

    name: str
    uid: str
    group: Group
    role: Role
    revision: str
    made_s: float
    num_pods_wanted: int
    num_pods: int
    draining: str
    restarts_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class View:
    """One resource and what belongs to it, at one moment.

    Attributes:
        resource: as the API server has it.
        children: by kind, only those that this resource owns.
        pods: of its groups, those of earlier epochs included.
        refusals: what was said of sets that have too few pods, by the set's name, and of pods that
            wait for a volume, by the pod's.
        missing_claims: named by the resource, and not there.
    """

    resource: JsonObject
    children: Mapping[Kind, tuple[JsonObject, ...]]
    pods: tuple[PodSeen, ...] = ()
    refusals: Mapping[str, str] = field(default_factory=dict)
    missing_claims: tuple[str, ...] = ()

    @property
    def sets(self) -> tuple[SetSeen, ...]:
        """Its StatefulSets; one whose labels somebody has spoilt is left out, and made good."""
        seen = (set_seen(document) for document in self.children.get(Kind.STATEFUL_SET, ()))
        return tuple(one for one in seen if one is not None)

    def child(self, kind: Kind, name: str) -> JsonObject | None:
        """The child of this kind and name."""
        found = (c for c in self.children.get(kind, ()) if c["metadata"]["name"] == name)
        return next(found, None)


def is_owned(document: JsonObject, uid: str) -> bool:
    """Whether the resource with this uid controls the object."""
    owners = document["metadata"].get("ownerReferences", ())
    return any(owner["uid"] == uid and owner.get("controller") for owner in owners)


def set_seen(document: JsonObject) -> SetSeen | None:
    """A StatefulSet of a group; None if its labels do not say which."""
    metadata = document["metadata"]
    own = metadata.get("labels", {})
    group, role = _group(own), _role(own)
    if group is None or role is None:
        return None
    annotations = metadata.get("annotations", {})
    return SetSeen(
        name=metadata["name"],
        uid=metadata["uid"],
        group=group,
        role=role,
        revision=own.get(labels.REVISION, ""),
        made_s=seconds_at(metadata, "creationTimestamp") or 0.0,
        num_pods_wanted=document["spec"].get("replicas", 1),
        num_pods=document.get("status", {}).get("replicas", 0),
        draining=annotations.get(DRAINING, ""),
        restarts_s=restarts_from_text(annotations.get(RESTARTS, "")),
    )


def pod_seen(document: JsonObject) -> PodSeen | None:
    """A pod of a group; None if its labels do not say which."""
    metadata, status = document["metadata"], document.get("status", {})
    own = metadata.get("labels", {})
    group, role = _group(own), _role(own)
    if group is None or role is None:
        return None
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    ready, scheduled = conditions.get("Ready", {}), conditions.get("PodScheduled", {})
    is_unschedulable = scheduled.get("status") == "False"
    return PodSeen(
        name=metadata["name"],
        uid=metadata["uid"],
        group=group,
        role=role,
        revision=own.get(labels.REVISION, ""),
        index=_ordinal(metadata["name"]),
        node=document.get("spec", {}).get("nodeName", ""),
        is_ready=ready.get("status") == "True",
        ready_changed_s=seconds_at(ready, "lastTransitionTime"),
        ends_s=seconds_at(metadata, "deletionTimestamp"),
        is_unschedulable=is_unschedulable,
        unscheduled_message=scheduled.get("message", "") if is_unschedulable else "",
        containers=tuple(
            _container(one)
            for key in ("initContainerStatuses", "containerStatuses")
            for one in status.get(key, ())
        ),
        key_secret=_key_secret(document),
    )


def restarts_from_text(text: str) -> tuple[float, ...]:
    """Seconds since 1970 with commas between; what somebody else wrote there counts for nothing."""
    return tuple(float(word) for word in text.split(",") if word.isdecimal())


def restarts_text(restarts_s: tuple[float, ...]) -> str:
    """What `restarts_from_text` reads."""
    return ",".join(str(int(moment_s)) for moment_s in restarts_s)


def _container(status: JsonObject) -> ContainerSeen:
    waiting = status.get("state", {}).get("waiting", {})
    # An init container is ready when it has done its work.
    return ContainerSeen(
        name=status["name"],
        is_ready=status.get("ready", False),
        num_restarts=status.get("restartCount", 0),
        waiting_reason=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
    )


def _key_secret(pod: JsonObject) -> str:
    volumes = pod.get("spec", {}).get("volumes", ())
    keys = (one["secret"]["secretName"] for one in volumes if one["name"] == GROUP_KEY_VOLUME)
    return next(keys, "")


def _group(own: Mapping[str, str]) -> Group | None:
    replica, epoch = own.get(labels.REPLICA, ""), own.get(labels.EPOCH, "")
    if not (replica.isdecimal() and epoch.isdecimal()):
        return None
    return Group(int(replica), int(epoch))


def _role(own: Mapping[str, str]) -> Role | None:
    return next((role for role in Role if role.value == own.get(labels.ROLE)), None)


def _ordinal(pod_name: str) -> int:
    ordinal = pod_name.rpartition("-")[2]
    return int(ordinal) if ordinal.isdecimal() else 0
