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


@dataclass(frozen=True, slots=True)
class Ageing:
    """Short prompts first, but each token is worth only a fixed wait.

    A request is overtaken by none that comes later than its own remaining tokens are worth, so that
    its wait stays bounded where the shortest-first order would let it starve.

    Attributes:
        seconds_per_token: what one token of a prompt is worth; 2 ms weighs 1,000 tokens like a
            TTFT target of 2 s.
    """

    seconds_per_token: float = 0.002

    def decide(self, view: WaitingRequestView) -> PositionDecision:
        """Place the request by its arrival plus the worth of its remaining tokens."""
        position = view.arrival_s + self.seconds_per_token * view.remaining_tokens
        return PositionDecision(position, Reason.AGEING_ORDER)
