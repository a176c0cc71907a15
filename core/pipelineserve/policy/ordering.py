"""Queue orders: which waiting request of one client and priority class goes first."""

from dataclasses import dataclass
from typing import Protocol

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import WaitingRequestView


@dataclass(frozen=True, slots=True)
class PositionDecision:
    """A request's place in the queue: the lowest `position` goes first."""

    position: float
    reason: Reason


class QueueOrder(Protocol):
    """Maps a request to its place, once, when it enters the queue."""

    def decide(self, view: WaitingRequestView) -> PositionDecision:
        """Give the request its place; ties are broken by the order of submission."""
        ...


@dataclass(frozen=True, slots=True)
class Arrival:
    """First come, first served."""

    def decide(self, view: WaitingRequestView) -> PositionDecision:
        """Place the request by its time of arrival, which a preemption does not change."""
        return PositionDecision(view.arrival_s, Reason.ARRIVAL_ORDER)
