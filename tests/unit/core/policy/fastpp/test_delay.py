"""FastPP's delay scheduling, case by case."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.fastpp.delay import FastppDelay, FastppDelayView
from pipelineserve.policy.fastpp.views import ChunkedPrompt
from pipelineserve.policy.holding import HoldEnd, HoldPlan
from pipelineserve.policy.reasons import Reason
from policy_views import make_slot

POLICY = FastppDelay(tpot_target_s=0.2)
PAPER = POLICY.as_in_the_paper()


def delay_view(
    requests: Sequence[int],
    *,
    num_held: int = 0,
    tpot_signal_s: float = 0.1,
    waiting_tokens: int = 0,
    kv_free_ratio: float = 1.0,
) -> FastppDelayView:
    """Slots with so many decodes each; the first of them is to be filled."""
    return FastppDelayView(
        slot_index=0,
        slots=tuple(make_slot(num) for num in requests),
        num_ready=requests[0],
        num_held=num_held,
        tpot_signal_s=tpot_signal_s,
        waiting_tokens=waiting_tokens,
        kv_free_ratio=kv_free_ratio,
    )


def test_below_512_requests_uneven_slots_are_left_alone() -> None:
    assert POLICY.decide(delay_view([120, 20, 20, 20])).reason is Reason.SLOTS_EVEN


def test_in_the_band_above_a_boundary_the_excess_is_held() -> None:
    plan = POLICY.decide(delay_view([140, 140, 140, 140]))
    assert plan == HoldPlan(12, 0, HoldEnd.NEWEST, Reason.ABOVE_BOUNDARY)


def test_in_the_band_a_slot_below_the_boundary_is_filled_from_those_held() -> None:
    plan = POLICY.decide(delay_view([120, 140, 140, 128], num_held=3))
    assert plan == HoldPlan(0, 3, HoldEnd.NEWEST, Reason.ABOVE_BOUNDARY)
    plan = POLICY.decide(delay_view([120, 140, 140, 128], num_held=30))
    assert plan.num_release == 8


@pytest.mark.parametrize(
    ("total", "reason"),
    [
        (511, Reason.SLOTS_UNEVEN),
        (512, Reason.ABOVE_BOUNDARY),
        (716, Reason.ABOVE_BOUNDARY),
        (717, Reason.SLOTS_EVEN),
    ],
)
def test_the_band_reaches_from_512_to_716(total: int, reason: Reason) -> None:
    view = delay_view([129, 100, 100, total - 329])
    assert POLICY.decide(view).reason is reason


def test_the_band_repeats_at_each_multiple() -> None:
    plan = POLICY.decide(delay_view([270, 260, 260, 260]))
    assert plan == HoldPlan(14, 0, HoldEnd.NEWEST, Reason.ABOVE_BOUNDARY)


def test_above_the_band_a_slot_is_filled_up_to_the_mean() -> None:
    plan = POLICY.decide(delay_view([100, 250, 250, 250], num_held=50))
    assert plan == HoldPlan(0, 50, HoldEnd.NEWEST, Reason.SLOTS_UNEVEN)
    plan = POLICY.decide(delay_view([200, 200, 200, 200], num_held=50))
    assert plan == HoldPlan(0, 12, HoldEnd.NEWEST, Reason.SLOTS_UNEVEN)


def test_outside_the_band_only_what_is_above_the_next_boundary_is_shed() -> None:
    plan = POLICY.decide(delay_view([140, 20, 20, 20]))
    assert plan == HoldPlan(12, 0, HoldEnd.NEWEST, Reason.SLOTS_UNEVEN)


def test_above_the_band_the_next_boundary_is_one_unit_further() -> None:
    plan = POLICY.decide(delay_view([260, 160, 160, 160]))
    assert plan == HoldPlan(4, 0, HoldEnd.NEWEST, Reason.SLOTS_UNEVEN)


def test_a_single_one_held_comes_back_too() -> None:
    plan = POLICY.decide(delay_view([120, 140, 140, 140], num_held=1))
    assert plan == HoldPlan(0, 1, HoldEnd.NEWEST, Reason.ABOVE_BOUNDARY)


def test_slots_between_the_mean_and_the_next_boundary_are_left_alone() -> None:
    plan = POLICY.decide(delay_view([128, 20, 20, 20], num_held=5))
    assert plan == HoldPlan(0, 0, HoldEnd.NEWEST, Reason.SLOTS_EVEN)


def test_headroom_suspends_the_band_and_the_shedding() -> None:
    view = delay_view([140, 140, 140, 140], waiting_tokens=1025)
    assert POLICY.decide(view).num_hold == 0
    assert POLICY.decide(replace(view, waiting_tokens=1024)).num_hold == 12
    assert POLICY.decide(replace(view, kv_free_ratio=0.10)).num_hold == 12
    uneven = delay_view([140, 20, 20, 20], waiting_tokens=1025)
    assert POLICY.decide(uneven).num_hold == 0


def test_with_headroom_those_held_come_back_up_to_the_mean() -> None:
    view = delay_view([120, 140, 140, 140], num_held=20, waiting_tokens=5000)
    assert POLICY.decide(view) == HoldPlan(0, 20, HoldEnd.NEWEST, Reason.SLOTS_UNEVEN)


@pytest.mark.parametrize(
    ("tpot_signal_s", "end"), [(0.179, HoldEnd.NEWEST), (0.181, HoldEnd.OLDEST)]
)
def test_from_nine_tenths_of_the_tpot_target_the_oldest_wait(
    tpot_signal_s: float, end: HoldEnd
) -> None:
    assert POLICY.decide(delay_view([140] * 4, tpot_signal_s=tpot_signal_s)).end is end


def test_prompts_being_cut_in_other_slots_are_no_requests() -> None:
    cut = ChunkedPrompt(0, 10)
    view = delay_view([129, 128, 128, 128])
    others = tuple(make_slot(127, chunked=cut) for _ in range(3))
    assert POLICY.decide(view).num_hold == 1
    assert POLICY.decide(replace(view, slots=(view.slots[0], *others))).reason is not (
        Reason.ABOVE_BOUNDARY
    )


def test_the_papers_variant_evens_out_any_imbalance() -> None:
    plan = PAPER.decide(delay_view([120, 20, 20, 20]))
    assert plan == HoldPlan(75, 0, HoldEnd.NEWEST, Reason.SLOTS_UNEVEN)


def test_the_papers_variant_knows_no_headroom() -> None:
    assert PAPER.decide(delay_view([140] * 4, waiting_tokens=9999)).num_hold == 12


@given(
    requests=st.lists(st.integers(0, 600), min_size=1, max_size=8),
    num_held=st.integers(0, 300),
    waiting_tokens=st.integers(0, 3000),
    policy=st.sampled_from([POLICY, PAPER]),
)
def test_no_plan_moves_more_than_there_are_nor_both_ways(
    requests: list[int], num_held: int, waiting_tokens: int, policy: FastppDelay
) -> None:
    view = delay_view(requests, num_held=num_held, waiting_tokens=waiting_tokens)
    plan = policy.decide(view)
    assert 0 <= plan.num_hold <= view.num_ready
    assert 0 <= plan.num_release <= num_held
    assert plan.num_hold == 0 or plan.num_release == 0
