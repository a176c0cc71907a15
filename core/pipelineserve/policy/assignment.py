"""Decode assignments: how many of the ready decodes enter the micro-batch being composed."""

from dataclasses import dataclass
from typing import Protocol

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import SchedulerView


@dataclass(frozen=True, slots=True)
class AssignmentDecision:
    """At most `max_decodes` decodes, those that became ready first."""

    max_decodes: int
    reason: Reason


class DecodeAssignment(Protocol):
    """Maps one view to the number of decodes of one micro-batch."""

    def decide(self, view: SchedulerView) -> AssignmentDecision:
        """Choose the number; the chunk's budget bounds it further."""
        ...


@dataclass(frozen=True, slots=True)
class OnePool:
    """All slots draw from one pool, each at most its even share, so that slots stay level."""

    def decide(self, view: SchedulerView) -> AssignmentDecision:
        """Take ⌈decoding ÷ slots⌉, counting those in flight, or all that are ready."""
        share = -(-view.num_decoding // view.num_slots)
        return AssignmentDecision(min(share, view.num_ready_decodes), Reason.EVEN_SHARE_OF_POOL)
