"""All that a status is made of."""

from dataclasses import dataclass
from enum import Enum

from pipelineserve_operator.conditions.waiting import Waiting, first_of
from pipelineserve_operator.findings import ResourceReport
from pipelineserve_operator.observed import View
from pipelineserve_operator.plan.planning import Plan
from pipelineserve_operator.plan.replicas import ReplicaSeen
from pipelineserve_operator.render import Subject


class BlockReason(Enum):
    """Why the operator cannot do what the resource asks for; a condition's `reason`."""

    INVALID_SPEC = "InvalidSpec"
    REFUSED = "ApplyRefused"
    NAME_TAKEN = "NameTaken"
    LEFTOVERS = "WaitingForLeftovers"

    @property
    def passes(self) -> bool:
        """Whether it goes away by itself."""
        return self is BlockReason.LEFTOVERS


@dataclass(frozen=True, slots=True)
class Blocked:
    """What stopped the operator."""

    reason: BlockReason
    message: str


@dataclass(frozen=True, slots=True)
class Situation:
    """One resource at one moment.

    Attributes:
        subject: None for a spec that cannot be read.
        replicas: wanted ones, and those that are left over.
        plan: what was to be done; None without a subject.
        blocked: why it could not be done, or not all of it.
        report: what the sidecars say; None if none are listened to.
    """

    view: View
    generation: int
    subject: Subject | None
    replicas: tuple[ReplicaSeen, ...]
    plan: Plan | None
    blocked: Blocked | None
    report: ResourceReport | None
    now_s: float

    @property
    def num_wanted(self) -> int | None:
        """Replicas that the spec asks for; None if it cannot be read."""
        return None if self.subject is None else self.subject.spec.replicas

    @property
    def wanted(self) -> tuple[ReplicaSeen, ...]:
        """The replicas that are to stay."""
        num_wanted = self.num_wanted
        if num_wanted is None:
            return self.replicas
        return tuple(one for one in self.replicas if one.index < num_wanted)

    @property
    def num_serving(self) -> int:
        """Wanted replicas that requests reach."""
        return sum(one.serving is not None for one in self.wanted)

    @property
    def num_existing(self) -> int:
        """Replicas that have sets."""
        return sum(one.newest is not None for one in self.replicas)

    @property
    def num_updated(self) -> int:
        """Wanted replicas whose newest group is of today's template."""
        revision = self.plan.revision if self.plan is not None else None
        newest = (one.newest for one in self.wanted)
        return sum(
            one is not None and one.is_being_made and one.revision == revision for one in newest
        )

    @property
    def num_outdated(self) -> int:
        """Wanted replicas that are there in an older revision, if only beside today's."""
        revision = self.plan.revision if self.plan is not None else None
        return sum(
            any(one.sets and one.revision != revision for one in replica.groups)
            for replica in self.wanted
        )

    def waiting(self) -> tuple[tuple[ReplicaSeen, Waiting], ...]:
        """Wanted replicas that are not whole, and why."""
        found = ((one, first_of(self.view, one)) for one in self.wanted)
        return tuple((one, why) for one, why in found if why is not None)

    def overdue(self) -> tuple[ReplicaSeen, ...]:
        """Wanted replicas that have not served for longer than a start may take."""
        return tuple(one for one, deadline_s in self.deadlines_s() if deadline_s <= self.now_s)

    def deadlines_s(self) -> tuple[tuple[ReplicaSeen, float], ...]:
        """By when each replica that is starting must serve."""
        if self.subject is None:
            return ()
        deadline_s = float(self.subject.spec.rollout.startup_deadline_seconds)
        found = []
        for replica in self.wanted:
            newest = replica.newest
            if newest is None or newest.draining:
                continue  # nothing is starting
            since_s = newest.silent_since_s()
            if since_s is not None:
                found.append((replica, since_s + deadline_s))
        return tuple(found)
