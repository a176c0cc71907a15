"""What a controller sends is bounded, in small steps, not too often and not for nothing."""

import math
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.control.guards import (
    GuardDecision,
    GuardMemory,
    ModeDecision,
    ModeGuard,
    ModeMemory,
    NumberGuard,
)
from pipelineserve.policy.reasons import Reason

GUARD = NumberGuard(least=100, most=1000, largest_step=200, least_period_s=1.0, hysteresis=10)
AT_500 = GuardMemory(500.0, changed_at_s=0.0)


def test_a_moderate_proposal_passes() -> None:
    decision, memory = GUARD.decide(AT_500, 600.0, 5.0)
    assert decision == GuardDecision(600.0, Reason.GUARD_PASSED)
    assert memory == GuardMemory(600.0, 5.0)


def test_a_far_proposal_goes_one_step() -> None:
    assert GUARD.decide(AT_500, 900.0, 5.0)[0] == GuardDecision(700.0, Reason.GUARD_STEP_LIMITED)
    assert GUARD.decide(AT_500, 100.0, 5.0)[0] == GuardDecision(300.0, Reason.GUARD_STEP_LIMITED)


def test_a_proposal_outside_the_bounds_is_clamped() -> None:
    decision, _ = GUARD.decide(GuardMemory(950.0), 1100.0, 5.0)
    assert decision == GuardDecision(1000.0, Reason.GUARD_OUT_OF_BOUNDS)


def test_a_change_too_soon_after_the_last_one_waits() -> None:
    decision, memory = GUARD.decide(AT_500, 600.0, 0.9)
    assert (decision, memory) == (GuardDecision(500.0, Reason.GUARD_TOO_SOON), AT_500)
    assert GUARD.decide(AT_500, 600.0, 1.0)[0].value == 600.0


def test_the_first_change_need_not_wait() -> None:
    assert GUARD.decide(GuardMemory(500.0), 600.0, 0.0)[0].value == 600.0


def test_a_change_within_the_hysteresis_is_not_made() -> None:
    assert GUARD.decide(AT_500, 510.0, 5.0)[0] == GuardDecision(500.0, Reason.GUARD_TOO_SMALL)
    assert GUARD.decide(AT_500, 511.0, 5.0)[0].value == 511.0


@pytest.mark.parametrize("proposed", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_changes_nothing(proposed: float) -> None:
    decision, memory = GUARD.decide(AT_500, proposed, 5.0)
    assert (decision, memory) == (GuardDecision(500.0, Reason.GUARD_NOT_FINITE), AT_500)


def test_new_bounds_hold_at_once_however_far_and_soon() -> None:
    decision, memory = GUARD.decide(GuardMemory(5000.0, 4.9), 4000.0, 5.0)
    assert decision == GuardDecision(1000.0, Reason.GUARD_OUT_OF_BOUNDS)
    assert memory == GuardMemory(1000.0, 5.0)


@pytest.mark.parametrize(
    "bounds", [(2.0, 1.0, 1.0, 0.0), (1.0, 2.0, 1.0, 1.0), (1.0, 2.0, 1.0, -1.0)]
)
def test_impossible_settings_are_refused(bounds: tuple[float, float, float, float]) -> None:
    least, most, step, hysteresis = bounds
    with pytest.raises(ValueError, match="guard: expected"):
        NumberGuard(least, most, largest_step=step, hysteresis=hysteresis)


def test_bounds_may_leave_one_value() -> None:
    guard = NumberGuard(5.0, 5.0, largest_step=1.0)
    assert guard.decide(GuardMemory(5.0), 9.0, 0.0)[0].value == 5.0


@given(
    st.lists(
        st.tuples(st.floats(allow_nan=True, allow_infinity=True), st.floats(0.0, 3.0)), max_size=60
    )
)
def test_no_proposals_break_bounds_steps_or_periods(proposals: list[tuple[float, float]]) -> None:
    memory, now_s = AT_500, 0.0
    for proposed, pause_s in proposals:
        now_s += pause_s
        before = memory
        decision, memory = GUARD.decide(memory, proposed, now_s)
        assert decision.value == memory.value
        assert 100 <= memory.value <= 1000
        assert abs(memory.value - before.value) <= 200 + 1e-9
        if memory.value != before.value:
            assert before.changed_at_s is not None
            assert now_s - before.changed_at_s >= 1.0
            assert abs(memory.value - before.value) > 10


class Light(Enum):
    """Three modes of something."""

    RED = "red"
    GREEN = "green"
    BLUE = "blue"


def modes(*proposals: tuple[float, Light]) -> list[ModeDecision[Light]]:
    memory: ModeMemory[Light] = ModeMemory(Light.RED)
    decisions = []
    for now_s, proposed in proposals:
        decision, memory = ModeGuard(settle_s=2.0).decide(memory, proposed, now_s)
        decisions.append(decision)
    return decisions


def test_another_mode_must_be_proposed_for_a_while() -> None:
    waiting = ModeDecision(Light.RED, Reason.GUARD_UNSETTLED)
    passed = ModeDecision(Light.GREEN, Reason.GUARD_PASSED)
    green = Light.GREEN
    assert modes((5.0, green), (6.9, green), (7.0, green)) == [waiting, waiting, passed]


def test_a_break_in_the_proposal_starts_the_while_anew() -> None:
    decisions = modes((0.0, Light.GREEN), (1.0, Light.RED), (2.5, Light.GREEN), (4.0, Light.GREEN))
    assert [decision.mode for decision in decisions] == [Light.RED] * 4


def test_a_third_mode_starts_the_while_anew() -> None:
    decisions = modes((0.0, Light.GREEN), (1.0, Light.BLUE), (2.5, Light.BLUE), (3.0, Light.BLUE))
    assert [decision.mode for decision in decisions] == [Light.RED] * 3 + [Light.BLUE]


def test_without_a_while_a_mode_passes_at_once() -> None:
    decision, _ = ModeGuard(settle_s=0.0).decide(ModeMemory(Light.RED), Light.BLUE, 1.0)
    assert decision.mode is Light.BLUE
