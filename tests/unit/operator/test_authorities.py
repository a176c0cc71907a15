"""A CA is published before it signs, and outlasts all that it signed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelineserve_operator.authorities import (
    AUTHORITY_LIFE_S,
    INTRODUCTION_S,
    PAIR_LIFE_S,
    Authority,
    bundle,
    is_pair_due,
    plan_authorities,
    signer,
)

DAY_S = 86_400.0


def authority(made_at_s: float) -> Authority:
    name = f"ca of {made_at_s:.0f}\n"
    return Authority(name, f"key of {name}", made_at_s, made_at_s + AUTHORITY_LIFE_S)


def test_without_any_one_is_made_and_signs_at_once() -> None:
    plan = plan_authorities((), 0.0)
    assert (plan.kept, plan.makes_one) == ((), True)
    first = authority(0.0)
    assert signer((first,), 0.0) == first
    assert plan_authorities((first,), 1.0).makes_one is False


def test_another_is_made_in_time_and_only_once() -> None:
    old = authority(0.0)
    late_s = AUTHORITY_LIFE_S - 89 * DAY_S
    assert plan_authorities((old,), late_s - 2 * DAY_S).makes_one is False
    assert plan_authorities((old,), late_s).makes_one is True
    assert plan_authorities((old, authority(late_s)), late_s + DAY_S).makes_one is False


def test_a_new_one_is_only_published_at_first_and_signs_later() -> None:
    old, new = authority(0.0), authority(1000 * DAY_S)
    begins_s = new.made_at_s
    assert signer((old, new), begins_s + INTRODUCTION_S - 1.0) == old
    assert signer((old, new), begins_s + INTRODUCTION_S) == new
    assert bundle((old, new)) == old.certificate + new.certificate


def test_the_old_one_goes_when_nothing_that_it_signed_is_left() -> None:
    old, new = authority(0.0), authority(600 * DAY_S)
    ends_s = new.made_at_s + INTRODUCTION_S + PAIR_LIFE_S
    assert plan_authorities((old, new), ends_s - 1.0).kept == (old, new)
    assert plan_authorities((old, new), ends_s).kept == (new,)


def test_what_has_ended_is_not_kept() -> None:
    plan = plan_authorities((authority(0.0),), AUTHORITY_LIFE_S)
    assert (plan.kept, plan.makes_one) == ((), True)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0.0, 40 * DAY_S), min_size=1, max_size=200))
def test_at_any_rhythm_of_looking_whoever_knew_the_bundle_a_day_ago_trusts_the_signer(
    pauses_s: list[float],
) -> None:
    """Sidecars learn of a bundle within a day; the operator may be away for weeks in between."""
    now_s, known = 0.0, tuple[Authority, ...]()
    for pause_s in pauses_s:
        before = known
        now_s += pause_s
        plan = plan_authorities(known, now_s)
        known = (*plan.kept, authority(now_s)) if plan.makes_one else plan.kept
        by = signer(known, now_s)
        assert len(known) <= 3
        assert by.ends_at_s > now_s
        if pause_s >= INTRODUCTION_S and before:
            assert by in before


def test_a_certificate_is_replaced_well_before_its_end() -> None:
    assert is_pair_due(PAIR_LIFE_S, 0.0) is False
    assert is_pair_due(PAIR_LIFE_S, PAIR_LIFE_S - 9 * DAY_S) is True
