"""Targets are met by whole answers within every bound; the steady window is the middle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.load.targets import Target, Targets, Window, steady_window

LATENCIES = st.none() | st.floats(0, 10)


@given(LATENCIES, LATENCIES, LATENCIES, st.floats(0.1, 5), st.floats(1, 3))
def test_looser_targets_are_met_by_whatever_meets_stricter_ones(
    ttft_s: float | None, tpot_s: float | None, e2e_s: float | None, bound_s: float, factor: float
) -> None:
    strict, loose = Target(90, bound_s), Target(90, bound_s * factor)
    if Targets(strict, strict, strict).are_met(ttft_s, tpot_s, e2e_s):
        assert Targets(loose, loose, loose).are_met(ttft_s, tpot_s, e2e_s)


@pytest.mark.parametrize("late", range(3))
def test_each_bound_counts(late: int) -> None:
    values = [1.0, 1.0, 1.0]
    targets = Targets(Target(90, 1.0), Target(90, 1.0), Target(90, 1.0))
    assert targets.are_met(*values)
    values[late] = 1.001
    assert not targets.are_met(*values)


def test_a_latency_that_does_not_exist_is_no_miss() -> None:
    assert Targets(tpot=Target(90, 0.001)).are_met(5.0, None, 5.0)


def test_the_steady_window_is_the_middle_of_the_arrivals() -> None:
    assert steady_window([float(at_s) for at_s in range(2, 103)]) == Window(12.0, 92.0)


@pytest.mark.parametrize("times_s", [[1.0] * 20, [0.0, 1.0, 2.0]])
def test_too_few_arrivals_or_all_at_once_have_no_steady_window(times_s: list[float]) -> None:
    assert steady_window(times_s) is None
