"""When a group has failed so that nobody within it can help, and how often it may start anew."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from pipelineserve.api import RecoverySpec
from pipelineserve_operator.observed import PodSeen
from pipelineserve_operator.plan.replicas import GroupSeen

# By then the kubelet has tried for about two and a half minutes, and pauses longer each time.
_CRASHES = 5
_CRASH_LOOP = "CrashLoopBackOff"
_FIRST_PAUSE_S = 10.0
_MOST_PAUSE_S = 600.0


class Failure(Enum):
    """Why a group cannot go on."""

    NODE_LOST = "NodeLost"
    CRASH_LOOP = "CrashLoop"
    KEY_LOST = "KeyLost"


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a group has failed.

    Attributes:
        judged_again_s: when a pod whose node is silent counts as lost; None if there is none.
    """

    failure: Failure | None = None
    pod_name: str = ""
    judged_again_s: float | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """What is left of a replica's restarts.

    Attributes:
        recent_s: restarts within the window.
        is_spent: whether a person must look now.
        not_before_s: when the next start may be.
    """

    recent_s: tuple[float, ...]
    is_spent: bool
    not_before_s: float


def health_of(group: GroupSeen, recovery: RecoverySpec, now_s: float) -> Health:
    """The failure of the first pod that has one."""
    lost_s = [(pod, moment_s) for pod in group.pods for moment_s in _lost_s(pod, recovery)]
    for pod, moment_s in lost_s:
        if moment_s <= now_s:
            return Health(Failure.NODE_LOST, pod.name)
    judged_again_s = min((moment_s for _, moment_s in lost_s), default=None)
    for pod in group.pods:
        if pod.is_gone_soon:
            continue  # what happens to it now happens to no group
        if pod.lacks_key:
            # Another key under the same name would part it from those that hold the old one.
            return Health(Failure.KEY_LOST, pod.name, judged_again_s)
        if _is_looping(pod):
            return Health(Failure.CRASH_LOOP, pod.name, judged_again_s)
    return Health(judged_again_s=judged_again_s)


def budget_of(group: GroupSeen, recovery: RecoverySpec, now_s: float) -> Budget:
    """What is left after the restarts within the window; each pause is twice the one before."""
    recent_s = tuple(at for at in group.restarts_s if at > now_s - recovery.window_seconds)
    pause_s = min(_FIRST_PAUSE_S * 2.0 ** (len(recent_s) - 1), _MOST_PAUSE_S)
    return Budget(
        recent_s=recent_s,
        is_spent=len(recent_s) >= recovery.max_restarts,
        not_before_s=recent_s[-1] + pause_s if recent_s else 0.0,
    )


def overdue_s(pod: PodSeen, recovery: RecoverySpec) -> float | None:
    """When a pod that was asked to end is waited for no longer."""
    return None if pod.ends_s is None else pod.ends_s + recovery.node_lost_seconds


def _lost_s(pod: PodSeen, recovery: RecoverySpec) -> Iterator[float]:
    ending_s = overdue_s(pod, recovery)
    if ending_s is not None:
        yield ending_s
    elif pod.is_silent and pod.ready_changed_s is not None:
        yield pod.ready_changed_s + recovery.node_lost_seconds


def _is_looping(pod: PodSeen) -> bool:
    return any(
        one.waiting_reason == _CRASH_LOOP and one.num_restarts >= _CRASHES and not one.is_sidecar
        for one in pod.containers
    )
