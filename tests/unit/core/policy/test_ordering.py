"""Who goes first in the queue."""

from pipelineserve.policy.ordering import Arrival, PositionDecision
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import WaitingRequestView


def test_arrival_places_the_earlier_first_however_long_it_is() -> None:
    early = Arrival().decide(WaitingRequestView(arrival_s=1.0, remaining_tokens=9000))
    late = Arrival().decide(WaitingRequestView(arrival_s=2.0, remaining_tokens=1))
    assert early.position < late.position


def test_arrival_says_why() -> None:
    view = WaitingRequestView(arrival_s=3.5, remaining_tokens=10)
    assert Arrival().decide(view) == PositionDecision(3.5, Reason.ARRIVAL_ORDER)
