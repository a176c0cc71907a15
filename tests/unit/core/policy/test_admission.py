"""Admission with known lengths: KV is looked at before each end."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.admission import AdmissionDecision, AdmissionView, KnownLengths
from pipelineserve.policy.reasons import Reason

POLICY = KnownLengths(reserve_tokens=0)


def admission_view(
    free_tokens: int, running: tuple[tuple[int, int], ...] = (), *, remaining_tokens: int = 10
) -> AdmissionView:
    return AdmissionView(free_tokens, remaining_tokens, kept_tokens=0, running=running)


def test_alone_it_needs_room_for_its_own_output() -> None:
    assert POLICY.decide(admission_view(11)) == AdmissionDecision(True, Reason.KV_WILL_SUFFICE)
    assert POLICY.decide(admission_view(10)) == AdmissionDecision(False, Reason.KV_WILL_RUN_OUT)


def test_who_ends_earlier_gives_back_what_it_has() -> None:
    # At the end of the short one both have grown by 2; then 5 come back for the other 8.
    assert POLICY.decide(admission_view(6, ((2, 5),))).may_start
    assert not POLICY.decide(admission_view(6, ((2, 4),))).may_start
    assert not POLICY.decide(admission_view(4, ((2, 100),))).may_start


def test_the_reserve_counts_for_each_that_is_left() -> None:
    with_reserve = replace(POLICY, reserve_tokens=3)
    assert with_reserve.decide(admission_view(14)).may_start
    assert not with_reserve.decide(admission_view(13)).may_start
    # Two that end together need 2 · (10 + 3).
    assert with_reserve.decide(admission_view(27, ((10, 0),))).may_start
    assert not with_reserve.decide(admission_view(26, ((10, 0),))).may_start


states = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 50)), max_size=8)


def least_free(view: AdmissionView) -> int:
    """Step by step: the least that is free before anybody's KV of this step comes back."""
    free, states = view.free_tokens, [*view.running, (view.remaining_tokens, view.kept_tokens)]
    least, step = free, 0
    while states:
        step += 1
        free -= len(states)
        least = min(least, free)
        free += sum(remaining + kept for remaining, kept in states if remaining == step)
        states = [state for state in states if state[0] > step]
    return least


@given(st.integers(0, 400), st.integers(1, 30), states)
def test_it_agrees_with_a_walk_through_every_step(
    free_tokens: int, remaining_tokens: int, running: list[tuple[int, int]]
) -> None:
    view = admission_view(free_tokens, tuple(running), remaining_tokens=remaining_tokens)
    assert POLICY.decide(view).may_start == (least_free(view) > 0)
