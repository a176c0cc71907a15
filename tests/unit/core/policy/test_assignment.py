"""How many decodes a micro-batch takes."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.assignment import AssignmentDecision, OnePool, SlotBound
from pipelineserve.policy.reasons import Reason
from scheduling import make_view


def test_one_pool_rounds_the_even_share_up() -> None:
    view = make_view(num_slots=4, num_decoding=9, num_ready_decodes=9)
    assert OnePool().decide(view) == AssignmentDecision(3, Reason.EVEN_SHARE_OF_POOL)


def test_one_pool_takes_no_more_than_are_ready() -> None:
    view = make_view(num_slots=2, num_decoding=9, num_ready_decodes=1)
    assert OnePool().decide(view).max_decodes == 1


@given(num_slots=st.integers(1, 16), num_decoding=st.integers(0, 500))
def test_one_pool_empties_the_pool_over_all_slots(num_slots: int, num_decoding: int) -> None:
    num_ready = num_decoding
    shares = []
    for _ in range(num_slots):
        view = make_view(
            num_slots=num_slots, num_decoding=num_decoding, num_ready_decodes=num_ready
        )
        shares.append(OnePool().decide(view).max_decodes)
        num_ready -= shares[-1]
    assert num_ready == 0
    assert max(shares) == -(-num_decoding // num_slots)


def test_the_target_for_slack_is_passed_on() -> None:
    view = make_view(num_decoding=4, num_ready_decodes=4)
    assert OnePool(0.2).decide(view).tpot_target_s == 0.2
    assert OnePool().decide(view).tpot_target_s is None


def test_bound_to_their_slot_all_ready_ones_go() -> None:
    view = make_view(num_slots=4, num_decoding=40, num_ready_decodes=30)
    assert SlotBound().decide(view) == AssignmentDecision(30, Reason.BOUND_TO_SLOT)
