"""Why pods wait, in the order in which a person would want to know."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from pipelineserve_operator.observed import ContainerSeen, PodSeen, View
from pipelineserve_operator.plan.replicas import GroupSeen, ReplicaSeen


class WaitReason(Enum):
    """Why a replica does not serve yet; a condition's `reason`. The first that applies is said."""

    CLAIM_MISSING = "ClaimMissing"
    PODS_REFUSED = "PodsRefused"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    CONFIGURATION_MISSING = "ConfigurationMissing"
    CRASH_LOOP = "CrashLoop"
    VOLUME_UNAVAILABLE = "VolumeUnavailable"
    NODE_SILENT = "NodeSilent"
    DRAINING = "Draining"
    STARTING = "Starting"


_BY_KUBELET = {
    "ErrImagePull": WaitReason.IMAGE_UNAVAILABLE,
    "ImagePullBackOff": WaitReason.IMAGE_UNAVAILABLE,
    "ErrImageNeverPull": WaitReason.IMAGE_UNAVAILABLE,
    "InvalidImageName": WaitReason.IMAGE_UNAVAILABLE,
    "CreateContainerConfigError": WaitReason.CONFIGURATION_MISSING,
    "CreateContainerError": WaitReason.CONFIGURATION_MISSING,
    "CrashLoopBackOff": WaitReason.CRASH_LOOP,
}
_MAX_WORDS = 500


@dataclass(frozen=True, slots=True)
class Waiting:
    """One reason, with the object that it is about and what Kubernetes says of it."""

    reason: WaitReason
    message: str


def first_of(view: View, replica: ReplicaSeen) -> Waiting | None:
    """The most telling reason of a replica's newest group; None if it is whole."""
    newest = replica.newest
    if newest is not None and newest.is_whole:
        return None
    found = [*_missing_claims(view), *_of_group(view, newest)]
    order = list(WaitReason)
    return min(found, key=lambda one: order.index(one.reason))


def _missing_claims(view: View) -> Iterator[Waiting]:
    for claim in view.missing_claims:
        text = f"PersistentVolumeClaim {claim} is not there; create it, or name another one"
        yield Waiting(WaitReason.CLAIM_MISSING, text)


def _of_group(view: View, group: GroupSeen | None) -> Iterator[Waiting]:
    if group is None:
        yield Waiting(WaitReason.STARTING, "its pods are being made")
        return
    if group.draining:
        yield Waiting(WaitReason.DRAINING, "its pods finish their requests, then it starts anew")
        return
    for one in group.sets:
        if one.num_pods < one.num_pods_wanted and one.name in view.refusals:
            text = f"StatefulSet {one.name}: {_bounded(view.refusals[one.name])}"
            yield Waiting(WaitReason.PODS_REFUSED, text)
    for pod in group.pods:
        yield from _of_pod(view, pod)
    yield Waiting(WaitReason.STARTING, "its pods are not ready yet")


def _of_pod(view: View, pod: PodSeen) -> Iterator[Waiting]:
    if pod.is_unschedulable:
        text = f"Pod {pod.name}: {_bounded(pod.unscheduled_message)}"
        yield Waiting(WaitReason.UNSCHEDULABLE, text)
    for container in pod.containers:
        yield from _of_container(pod, container)
    if not pod.is_ready and pod.name in view.refusals:
        text = f"Pod {pod.name}: {_bounded(view.refusals[pod.name])}"
        yield Waiting(WaitReason.VOLUME_UNAVAILABLE, text)
    if pod.is_silent:
        text = f"Pod {pod.name}: its node {pod.node} does not answer"
        yield Waiting(WaitReason.NODE_SILENT, text)


def _of_container(pod: PodSeen, container: ContainerSeen) -> Iterator[Waiting]:
    reason = _BY_KUBELET.get(container.waiting_reason)
    if reason is not None:
        words = container.waiting_message or container.waiting_reason
        yield Waiting(reason, f"Pod {pod.name}, container {container.name}: {_bounded(words)}")


def _bounded(text: str) -> str:
    return text if len(text) <= _MAX_WORDS else f"{text[:_MAX_WORDS]}..."
