"""Which groups are kept, drained, removed and started: one step of every change, pure.

A step is taken from what is there, so a process that ends between two steps loses nothing. What
must outlive the pods (the epoch, why a group drains, when groups failed) is on the sets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pipelineserve.api import PipelineServeSpec
from pipelineserve_operator.plan.failures import (
    Failure,
    budget_of,
    health_of,
    overdue_s,
)
from pipelineserve_operator.plan.replicas import GroupSeen, ReplicaSeen
from pipelineserve_operator.render import Group


class Cause(Enum):
    """Why something is done to a group; the text of events, annotations and conditions."""

    NEW_REPLICA = "NewReplica"
    SCALED_DOWN = "ScaledDown"
    ROLLOUT = "Rollout"
    REPLACED = "Replaced"
    NODE_LOST = "NodeLost"
    CRASH_LOOP = "CrashLoop"
    KEY_LOST = "KeyLost"
    PODS_LOST = "PodsLost"

    @property
    def is_failure(self) -> bool:
        """Whether it counts against the recovery budget."""
        return self in {Cause.NODE_LOST, Cause.CRASH_LOOP, Cause.KEY_LOST}


@dataclass(frozen=True, slots=True)
class Started:
    """A group that is to be there, with the restarts that its sets remember."""

    group: Group
    revision: str
    restarts_s: tuple[float, ...] = ()
    cause: Cause = Cause.NEW_REPLICA


@dataclass(frozen=True, slots=True)
class Drained:
    """A group whose pods are to end; its sets stay until the next epoch is there."""

    seen: GroupSeen
    cause: Cause


@dataclass(frozen=True, slots=True)
class Removed:
    """A group whose sets go, and its pods with them."""

    seen: GroupSeen
    cause: Cause


@dataclass(frozen=True, slots=True)
class Steps:
    """What is to be done to the groups of a resource now.

    Attributes:
        kept: stay as they are.
        started: are made.
        exhausted: replicas that have failed too often, and of what.
        look_again_s: when time alone changes what is to be done; None for never.
    """

    kept: tuple[GroupSeen, ...] = ()
    started: tuple[Started, ...] = ()
    drained: tuple[Drained, ...] = ()
    removed: tuple[Removed, ...] = ()
    exhausted: tuple[tuple[int, Failure], ...] = ()
    look_again_s: float | None = None


@dataclass(slots=True)
class _Draft:
    """Steps while they are being collected, and what they are decided by."""

    spec: PipelineServeSpec
    revision: str | None
    now_s: float
    kept: list[GroupSeen] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    drained: list[Drained] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    exhausted: list[tuple[int, Failure]] = field(default_factory=list)
    moments_s: list[float] = field(default_factory=list)

    def steps(self) -> Steps:
        return Steps(
            kept=tuple(self.kept),
            started=tuple(self.started),
            drained=tuple(self.drained),
            # The highest replica goes first.
            removed=tuple(reversed(self.removed)),
            exhausted=tuple(self.exhausted),
            look_again_s=min(self.moments_s, default=None),
        )


def next_steps(
    replicas: Sequence[ReplicaSeen], spec: PipelineServeSpec, revision: str | None, now_s: float
) -> Steps:
    """The next step of everything that is under way.

    Args:
        replicas: wanted ones and those that are left over.
        spec: of the resource.
        revision: of the rolling fields; None if no group can be made of them: then nothing is
            started or replaced, and what is there serves on.
        now_s: seconds since 1970.
    """
    draft, outdated = _Draft(spec, revision, now_s), []
    wanted = [one for one in replicas if one.index < spec.replicas]
    for replica in replicas:
        if replica.index >= spec.replicas:
            draft.removed += [Removed(g, Cause.SCALED_DOWN) for g in replica.groups if g.sets]
        elif replica.newest is None:
            _begin(replica, draft)
        elif replica.newest.draining:
            _start_next(replica, replica.newest, draft)
        else:
            outdated += _settle(replica, replica.newest, draft)
    _replace(outdated, wanted, draft)
    return draft.steps()


def _begin(replica: ReplicaSeen, draft: _Draft) -> None:
    """A replica without sets: new, or its sets were taken away."""
    alive = [g for g in replica.groups if any(not pod.is_gone_soon for pod in g.pods)]
    if alive:
        # Pods that lost their set get it back rather than end.
        draft.started.append(Started(alive[-1].group, alive[-1].revision, cause=Cause.PODS_LOST))
    elif draft.revision is not None and _has_ended(replica.groups, draft):
        draft.started.append(Started(replica.next_group, draft.revision))


def _start_next(replica: ReplicaSeen, newest: GroupSeen, draft: _Draft) -> None:
    """A replica whose group drains: once that is done, and after a pause, the next one starts."""
    cause = _cause(newest.draining)
    draft.drained.append(Drained(newest, cause))
    _keep_serving((g for g in replica.groups if g.sets and g is not newest), draft)
    if not _has_ended((g for g in replica.groups if not g.serves), draft):
        return
    # Without a template of today, what ran until now is better than nothing.
    revision = draft.revision or newest.revision
    budget = budget_of(newest, draft.spec.recovery, draft.now_s)
    if not cause.is_failure:
        draft.started.append(Started(replica.next_group, revision, cause=cause))
    elif budget.not_before_s > draft.now_s:
        draft.moments_s.append(budget.not_before_s)
    else:
        restarts_s = (*budget.recent_s, float(int(draft.now_s)))
        draft.started.append(Started(replica.next_group, revision, restarts_s, cause))


def _settle(replica: ReplicaSeen, newest: GroupSeen, draft: _Draft) -> list[ReplicaSeen]:
    """A replica whose newest group is to stay, or to be replaced: then it is returned."""
    older = [one for one in replica.groups if one.sets and one is not newest]
    is_done = newest.is_whole or not any(one.serves for one in older)
    if is_done:
        draft.removed += [Removed(one, Cause.REPLACED) for one in older]
    else:
        _keep_serving(older, draft)
    if draft.revision is not None and newest.revision != draft.revision:
        return [replica]
    _recover(replica, newest, draft)
    return []


def _keep_serving(older: Iterable[GroupSeen], draft: _Draft) -> None:
    """Beside a newest group that does not serve (yet)."""
    for one in older:
        if one.serves:
            draft.kept.append(one)
        else:
            draft.removed.append(Removed(one, Cause.REPLACED))


def _recover(replica: ReplicaSeen, newest: GroupSeen, draft: _Draft) -> None:
    recovery = draft.spec.recovery
    health = health_of(newest, recovery, draft.now_s)
    if health.judged_again_s is not None:
        draft.moments_s.append(health.judged_again_s)
    if health.failure is None:
        draft.kept.append(newest)
    elif budget_of(newest, recovery, draft.now_s).is_spent:
        draft.kept.append(newest)
        draft.exhausted.append((replica.index, health.failure))
    else:
        draft.drained.append(Drained(newest, Cause(health.failure.value)))


def _replace(outdated: Iterable[ReplicaSeen], wanted: Sequence[ReplicaSeen], draft: _Draft) -> None:
    """Groups of an older revision: at once if they do not serve, else within the bounds."""
    rollout, revision = draft.spec.rollout, draft.revision
    num_down = sum(one.serving is None for one in wanted)
    num_beside = sum(_has_two(one) for one in wanted)
    for replica in outdated:
        newest = replica.newest
        if newest is None or revision is None:
            raise ValueError("expected an outdated replica to have a group and a revision")
        if replica.serving is None:
            draft.drained.append(Drained(newest, Cause.ROLLOUT))
        elif replica.serving is not newest:
            # An edit came before the one beside was ready: it goes, another comes.
            draft.removed.append(Removed(newest, Cause.ROLLOUT))
            draft.started.append(Started(replica.next_group, revision, cause=Cause.ROLLOUT))
        elif num_beside < rollout.max_surge:
            num_beside += 1
            draft.kept.append(newest)
            draft.started.append(Started(replica.next_group, revision, cause=Cause.ROLLOUT))
        elif num_down < rollout.max_unavailable:
            num_down += 1
            draft.drained.append(Drained(newest, Cause.ROLLOUT))
        else:
            draft.kept.append(newest)


def _has_two(replica: ReplicaSeen) -> bool:
    newest = replica.newest
    return replica.serving is not None and newest is not None and newest is not replica.serving


def _has_ended(groups: Iterable[GroupSeen], draft: _Draft) -> bool:
    """Whether no pod is left, or only such as will never end; else looks again when that may be."""
    left = [pod for group in groups for pod in group.pods]
    ends_s = [overdue_s(pod, draft.spec.recovery) for pod in left]
    draft.moments_s += [end_s for end_s in ends_s if end_s is not None and end_s > draft.now_s]
    return all(end_s is not None and end_s <= draft.now_s for end_s in ends_s)


def _cause(text: str) -> Cause:
    """What an annotation says; one that says something else counts as an edit."""
    return next((cause for cause in Cause if cause.value == text), Cause.ROLLOUT)
