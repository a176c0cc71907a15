"""A view's sets and pods as replicas and their groups."""

from collections.abc import Iterable
from dataclasses import dataclass

from pipelineserve_operator.observed import PodSeen, SetSeen, View
from pipelineserve_operator.render import Group, GroupTemplate, Role


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One start of a replica as far as it is there.

    Attributes:
        sets: the leader's first; none when only pods are left.
    """

    group: Group
    sets: tuple[SetSeen, ...]
    pods: tuple[PodSeen, ...]

    @property
    def revision(self) -> str:
        """Of the template that it was made of."""
        of_sets = [one.revision for one in self.sets]
        return next(iter([*of_sets, *(pod.revision for pod in self.pods)]), "")

    @property
    def draining(self) -> str:
        """Why its pods are to end; empty while they are not."""
        return next((one.draining for one in self.sets if one.draining), "")

    @property
    def restarts_s(self) -> tuple[float, ...]:
        """When failed groups of this replica were started anew, this one included."""
        return next((one.restarts_s for one in self.sets if one.restarts_s), ())

    @property
    def made_s(self) -> float:
        """When its first set was made."""
        return min((one.made_s for one in self.sets), default=0.0)

    @property
    def leader(self) -> PodSeen | None:
        """The pod that serves, unless it is ending."""
        return next((p for p in self.pods if p.role is Role.LEADER and not p.is_gone_soon), None)

    @property
    def serves(self) -> bool:
        """Whether requests reach it."""
        return not self.draining and self.leader is not None and self.leader.is_ready

    @property
    def num_pods_wanted(self) -> int:
        """All pods of the group."""
        return sum(one.num_pods_wanted for one in self.sets)

    @property
    def is_whole(self) -> bool:
        """Whether it serves and all its pods are ready."""
        num_ready = sum(pod.is_ready and not pod.is_gone_soon for pod in self.pods)
        return self.serves and num_ready >= self.num_pods_wanted

    @property
    def is_being_made(self) -> bool:
        """Whether it is there, or will be."""
        return bool(self.sets) and not self.draining

    def silent_since_s(self) -> float | None:
        """Since when it has not served; None while it does."""
        if self.serves:
            return None
        leader = self.leader
        changed_s = leader.ready_changed_s if leader is not None else None
        return max(self.made_s, changed_s or 0.0)


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    """One replica: its groups by epoch, the newest last."""

    index: int
    groups: tuple[GroupSeen, ...]

    @property
    def newest(self) -> GroupSeen | None:
        """The latest start that has sets."""
        return next((one for one in reversed(self.groups) if one.sets), None)

    @property
    def serving(self) -> GroupSeen | None:
        """The latest start that serves."""
        return next((one for one in reversed(self.groups) if one.serves), None)

    @property
    def next_group(self) -> Group:
        """An epoch that no object of this replica has."""
        epoch = max((one.group.epoch for one in self.groups), default=-1) + 1
        return Group(self.index, epoch)


def replicas_seen(view: View, num_wanted: int) -> tuple[ReplicaSeen, ...]:
    """Every wanted replica, and every other that something is left of, by index."""
    groups = _groups(view.sets, view.pods)
    indices = {*range(num_wanted), *(one.group.replica_index for one in groups)}
    return tuple(
        ReplicaSeen(index, tuple(one for one in groups if one.group.replica_index == index))
        for index in sorted(indices)
    )


def _groups(sets: Iterable[SetSeen], pods: Iterable[PodSeen]) -> list[GroupSeen]:
    sets_of: dict[Group, list[SetSeen]] = {}
    pods_of: dict[Group, list[PodSeen]] = {}
    for one in sets:
        sets_of.setdefault(one.group, []).append(one)
    for pod in pods:
        pods_of.setdefault(pod.group, []).append(pod)
    every = sorted({*sets_of, *pods_of}, key=lambda group: (group.replica_index, group.epoch))
    return [
        GroupSeen(
            group,
            tuple(sorted(sets_of.get(group, ()), key=lambda one: list(Role).index(one.role))),
            tuple(sorted(pods_of.get(group, ()), key=lambda pod: (pod.index, pod.name))),
        )
        for group in every
    ]


def num_pods(template: GroupTemplate) -> int:
    """Pods of one group."""
    return template.num_workers + 1
