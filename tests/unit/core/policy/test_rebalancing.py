"""Decodes are held where it pays, within bounds, and nothing goes to and fro."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.holding import HoldEnd, HoldNothing, HoldPlan, HoldView
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.rebalancing import HoldMemory, HoldMode, Rebalance
from pipelineserve.policy.step_time import StepCoefficients
from pipelineserve.policy.views import DecodeLoad
from policy_views import make_hold_view, make_model

# A tread of 20 ms up to 100 tokens, then 30 ms up to 200.
MODEL = make_model(
    tokens=(1, 100, 101, 200),
    times_s=(0.02, 0.02, 0.03, 0.03),
    coefficients=StepCoefficients(),
)
POLICY = Rebalance(HoldMode.E2E_FIRST, MODEL, boundaries=(100, 200))
NEW = HoldMemory()
HOLDING = HoldMemory(boundary_tokens=100)


def planned(view: HoldView, memory: HoldMemory = NEW, policy: Rebalance = POLICY) -> HoldPlan:
    return policy.decide(memory, view)[0]


def test_just_above_a_measured_boundary_the_excess_is_held() -> None:
    plan, memory = POLICY.decide(NEW, make_hold_view(110))
    assert plan == HoldPlan(10, 0, HoldEnd.NEWEST, Reason.ABOVE_BOUNDARY)
    assert memory.boundary_tokens == 100


def test_far_above_a_boundary_holding_does_not_pay() -> None:
    # 100 in 20 ms are 5,000 per second, and so are 150 in 30 ms.
    assert planned(make_hold_view(150)).num_hold == 0
    assert planned(make_hold_view(142)).num_hold == 42  # 4,733 per second


def test_holding_starts_at_a_gain_and_ends_only_without_one() -> None:
    view = make_hold_view(146)  # 4,867 per second: holding gains 2.7 %
    assert planned(view).num_hold == 0
    assert planned(view, HOLDING).num_hold == 46
    assert planned(make_hold_view(151), HOLDING).num_hold == 0


def test_holding_goes_on_for_the_smallest_gain() -> None:
    assert planned(make_hold_view(149), HOLDING).num_hold == 49  # 4,967 per second


def test_contexts_of_those_held_count_in_what_a_step_costs() -> None:
    model = replace(MODEL, coefficients=StepCoefficients(decode_context_s=1e-7))
    policy = replace(POLICY, model=model)
    view = make_hold_view(100, live=400, held=120, context_tokens=2000)
    # With these, 130 decodes take 56 ms and 100 take 40 ms: 2,321 against 2,500 per second.
    assert planned(view, policy=policy).reason is Reason.ABOVE_BOUNDARY
    far = replace(view, held=DecodeLoad(120, 120 * 40_000))
    assert planned(far, policy=policy).reason is not Reason.ABOVE_BOUNDARY


def test_without_measured_boundaries_nothing_is_held_at_multiples_of_128() -> None:
    policy = replace(POLICY, boundaries=())
    assert planned(make_hold_view(130), policy=policy).num_hold == 0


def test_long_contexts_make_a_boundary_matter_less() -> None:
    model = replace(MODEL, coefficients=StepCoefficients(decode_context_s=1e-7))
    policy = replace(POLICY, model=model)
    assert planned(make_hold_view(130, context_tokens=100), policy=policy).num_hold == 30
    assert planned(make_hold_view(130, context_tokens=10_000), policy=policy).num_hold == 0


def test_prompts_that_cross_the_boundary_anyway_stop_the_holding() -> None:
    plan = planned(make_hold_view(110, prefill_tokens=1))
    assert plan == HoldPlan(0, 0, HoldEnd.NEWEST, Reason.PROMPTS_CROSS_BOUNDARY)


def test_no_more_is_held_than_gaps_and_budgets_allow() -> None:
    assert planned(make_hold_view(110, num_holdable=3)).num_hold == 3


def test_overdue_requests_go_and_others_are_held_in_their_place() -> None:
    plan = planned(make_hold_view(100, held=40, num_overdue=5), HOLDING)
    assert plan == HoldPlan(5, 5, HoldEnd.NEWEST, Reason.ABOVE_BOUNDARY)


def test_a_micro_batch_below_the_boundary_is_filled_from_those_held() -> None:
    plan = planned(make_hold_view(90, live=380, held=40), HOLDING)
    assert plan == HoldPlan(0, 10, HoldEnd.NEWEST, Reason.ABOVE_BOUNDARY)


def test_when_holding_ends_everybody_comes_back_within_a_few_micro_batches() -> None:
    live, held, memory = 90, 10, HOLDING
    for _ in range(10):
        due = -(-live // 4)
        plan, memory = POLICY.decide(memory, make_hold_view(due, live=live, held=held))
        assert plan.num_hold == 0
        live, held = live + plan.num_release, held - plan.num_release
    assert held == 0


def test_a_slot_dearer_than_the_mean_holds_its_excess() -> None:
    # 110 of 30 ms in a slot, 20 in each other: the mean slot has 43 and takes 20 ms.
    plan = planned(make_hold_view(110, live=170))
    assert plan == HoldPlan(10, 0, HoldEnd.NEWEST, Reason.SLOTS_UNEVEN)


def test_uneven_numbers_of_the_same_cost_are_left_alone() -> None:
    assert planned(make_hold_view(60, live=120)) == HoldPlan(
        0, 0, HoldEnd.NEWEST, Reason.SLOTS_EVEN
    )


def test_equal_numbers_of_unequal_cost_are_evened_out() -> None:
    model = make_model(
        tokens=(1, 1000), times_s=(0.01, 0.02), coefficients=StepCoefficients(decode_context_s=1e-7)
    )
    policy = replace(POLICY, model=model, boundaries=())
    dear = make_hold_view(40, context_tokens=1000, due_context_tokens=8000)
    plan = planned(dear, policy=policy)
    assert plan.reason is Reason.SLOTS_UNEVEN
    assert 0 < plan.num_hold < 40
    cost_s = policy._step_s(40 - plan.num_hold, 8000)
    assert cost_s <= policy._step_s(40, 1000) < policy._step_s(41 - plan.num_hold, 8000)


def test_a_slot_of_few_but_dear_decodes_takes_none_of_those_held() -> None:
    model = make_model(
        tokens=(1, 1000), times_s=(0.01, 0.02), coefficients=StepCoefficients(decode_context_s=1e-7)
    )
    policy = replace(POLICY, model=model, boundaries=())
    view = make_hold_view(20, live=160, held=40, due_context_tokens=9000)
    plan = planned(view, policy=policy)
    assert (plan.num_release, plan.reason) == (0, Reason.SLOTS_UNEVEN)
    assert plan.num_hold > 0


def test_a_slot_below_the_mean_takes_those_held_elsewhere() -> None:
    plan = planned(make_hold_view(10, live=170, held=30))
    assert plan == HoldPlan(0, 30, HoldEnd.NEWEST, Reason.SLOTS_UNEVEN)


@pytest.mark.parametrize("reason", [Reason.HOLDING_OFF, Reason.LEASE_ENDED])
def test_holding_nothing_releases_everybody_and_says_why(reason: Reason) -> None:
    plan = HoldNothing(reason).decide(make_hold_view(110, held=7))
    assert (plan.num_hold, plan.num_release, plan.reason) == (0, 7, reason)


def test_kv_pressure_releases_everybody_and_ends_later_than_it_begins() -> None:
    plan, memory = POLICY.decide(HOLDING, make_hold_view(110, held=7, kv_free_ratio=0.09))
    assert (plan.num_hold, plan.num_release, plan.reason) == (0, 7, Reason.KV_PRESSURE)
    assert planned(make_hold_view(110, kv_free_ratio=0.12), memory).reason is Reason.KV_PRESSURE
    assert planned(make_hold_view(110, kv_free_ratio=0.12)).reason is Reason.ABOVE_BOUNDARY
    assert planned(make_hold_view(110, kv_free_ratio=0.16), memory).reason is Reason.ABOVE_BOUNDARY


@pytest.mark.parametrize(
    ("mode", "end"),
    [(HoldMode.TPOT_FIRST, HoldEnd.OLDEST), (HoldMode.E2E_FIRST, HoldEnd.NEWEST)],
)
def test_a_mode_has_its_end(mode: HoldMode, end: HoldEnd) -> None:
    assert planned(make_hold_view(), policy=replace(POLICY, mode=mode)).end is end


@given(total=st.integers(0, 900), held=st.integers(0, 100))
def test_a_steady_load_comes_to_rest(total: int, held: int) -> None:
    """One pool, four slots in turn: after a while plans no longer change anything."""
    held = min(held, total)
    memory, moved = NEW, []
    for _ in range(120):
        live = total - held
        view = make_hold_view(-(-live // 4), live=live, held=held)
        plan, memory = POLICY.decide(memory, view)
        held += plan.num_hold - plan.num_release
        moved.append(plan.num_hold + plan.num_release)
    assert moved[-8:] == [0] * 8


views = st.builds(
    make_hold_view,
    due=st.integers(0, 400),
    live=st.integers(0, 1600),
    held=st.integers(0, 300),
    num_holdable=st.integers(0, 400),
    num_overdue=st.integers(0, 300),
    context_tokens=st.integers(0, 20_000),
    due_context_tokens=st.integers(0, 20_000),
    prefill_tokens=st.integers(0, 50),
    kv_free_ratio=st.floats(0, 1),
).map(
    lambda view: replace(
        view,
        live=DecodeLoad(view.live.num + view.due.num, view.live.context_tokens),
        num_holdable=min(view.num_holdable, view.due.num),
        num_overdue=min(view.num_overdue, view.held.num),
    )
)


@given(views=st.lists(views, min_size=1, max_size=12), mode=st.sampled_from(HoldMode))
def test_every_plan_respects_gaps_budgets_and_what_there_is(
    views: list[HoldView], mode: HoldMode
) -> None:
    policy = replace(POLICY, mode=mode)
    memory = NEW
    for view in views:
        plan, memory = policy.decide(memory, view)
        assert 0 <= plan.num_hold <= view.num_holdable
        assert view.num_overdue <= plan.num_release <= view.held.num
        if view.due.num > 0:
            assert view.due.num + plan.num_release - plan.num_hold >= 1
