"""Who goes first in the queue."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.ordering import Ageing, Arrival, PositionDecision
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import WaitingRequestView


def test_arrival_places_the_earlier_first_however_long_it_is() -> None:
    early = Arrival().decide(WaitingRequestView(arrival_s=1.0, remaining_tokens=9000))
    late = Arrival().decide(WaitingRequestView(arrival_s=2.0, remaining_tokens=1))
    assert early.position < late.position


def test_arrival_says_why() -> None:
    view = WaitingRequestView(arrival_s=3.5, remaining_tokens=10)
    assert Arrival().decide(view) == PositionDecision(3.5, Reason.ARRIVAL_ORDER)


def test_ageing_lets_a_short_prompt_overtake_a_long_one_that_came_just_before() -> None:
    long = Ageing().decide(WaitingRequestView(arrival_s=1.0, remaining_tokens=3000))
    short = Ageing().decide(WaitingRequestView(arrival_s=2.0, remaining_tokens=100))
    assert short.position < long.position
    assert short == PositionDecision(2.2, Reason.AGEING_ORDER)


@given(
    tokens=st.integers(1, 100_000),
    later_s=st.floats(0.001, 1000),
    other_tokens=st.integers(0, 10**6),
)
def test_ageing_bounds_by_whom_a_prompt_is_overtaken(
    tokens: int, later_s: float, other_tokens: int
) -> None:
    mine = Ageing().decide(WaitingRequestView(5.0, tokens)).position
    after_my_worth_s = 5.0 + 0.002 * tokens + later_s
    assert Ageing().decide(WaitingRequestView(after_my_worth_s, other_tokens)).position > mine
