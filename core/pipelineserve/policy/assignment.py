"""Decode assignments: how many of the ready decodes enter the micro-batch being composed."""

from dataclasses import dataclass
from typing import Protocol

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import SchedulerView


@dataclass(frozen=True, slots=True)
class AssignmentDecision:
    """At most `max_decodes` decodes.

    Attributes:
        max_decodes: of the ready ones that this slot may take.
        reason: why so many.
        tpot_target_s: where not all of them go, those go first that have the least slack to this
            target; None: those that became ready first.
    """

    max_decodes: int
    reason: Reason
    tpot_target_s: float | None = None


class DecodeAssignment(Protocol):
    """Maps one view to the number of decodes of one micro-batch."""

    @property
    def is_slot_bound(self) -> bool:
        """Whether a request decodes in the slot in which its prompt ended, and in no other."""
        ...

    def decide(self, view: SchedulerView) -> AssignmentDecision:
        """Choose the number; the chunk's budget bounds it further."""
        ...


@dataclass(frozen=True, slots=True)
class OnePool:
    """All slots draw from one pool, each at most its even share, so that slots stay level.

    Attributes:
        tpot_target_s: who has the least slack to it goes first, where not all ready ones go; None:
            in the order in which they became ready.
    """

    tpot_target_s: float | None = None

    @property
    def is_slot_bound(self) -> bool:
        """See `DecodeAssignment`."""
        return False

    def decide(self, view: SchedulerView) -> AssignmentDecision:
        """Take ⌈decoding ÷ slots⌉, counting those in flight, or all that are ready."""
        share = -(-view.num_decoding // view.num_slots)
        num = min(share, view.num_ready_decodes)
        return AssignmentDecision(num, Reason.EVEN_SHARE_OF_POOL, self.tpot_target_s)


@dataclass(frozen=True, slots=True)
class SlotBound:
    """A request stays in the slot in which its prompt ended, as in FastPP and SGLang.

    Slots become as uneven as chance makes them: for comparisons.
    """

    @property
    def is_slot_bound(self) -> bool:
        """See `DecodeAssignment`."""
        return True

    def decide(self, view: SchedulerView) -> AssignmentDecision:
        """Take all that are ready in this slot."""
        return AssignmentDecision(view.num_ready_decodes, Reason.BOUND_TO_SLOT)
