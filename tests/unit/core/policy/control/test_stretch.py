"""How long a cycle may last: longer while TPOT has room and TTFT is at risk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.control.stretch import (
    STRETCH_PERIOD_S,
    Stretch,
    StretchMemory,
    StretchView,
)
from pipelineserve.policy.reasons import Reason

STRETCH = Stretch()
AT_RISK = StretchView(ttft_ratio=0.8, tpot_ratio=0.5, kv_free_ratio=0.9)
ratios = st.none() | st.floats(0.0, 10.0)


def after(
    view: StretchView, num_periods: int, memory: StretchMemory | None = None
) -> StretchMemory:
    memory = memory or StretchMemory()
    start_s = memory.changed_at_s or 0.0
    for k in range(num_periods):
        memory = STRETCH.decide(memory, view, start_s + (k + 1) * STRETCH_PERIOD_S)
    return memory


def test_a_ttft_at_risk_lets_steps_last_longer_one_step_at_a_time() -> None:
    assert [after(AT_RISK, k).ratio for k in (1, 2, 3)] == [1.5, 2.0, 2.0]
    assert after(AT_RISK, 1).reason is Reason.TTFT_AT_RISK


def test_within_a_period_nothing_changes() -> None:
    memory = after(AT_RISK, 1)
    assert STRETCH.decide(memory, AT_RISK, 1.9 * STRETCH_PERIOD_S) == memory


@pytest.mark.parametrize(
    ("view", "ratio", "reason"),
    [
        (StretchView(0.8, 1.1, 0.9), 1.0, Reason.TPOT_VIOLATED),
        (StretchView(0.8, 0.97, 0.9), 1.0, Reason.TPOT_NEAR_TARGET),
        (StretchView(0.8, 0.9, 0.9), 1.5, Reason.TARGETS_MET),
        (StretchView(0.4, 0.5, 0.9), 1.5, Reason.TARGETS_MET),
        (StretchView(0.1, 0.5, 0.9), 1.0, Reason.TTFT_HAS_SLACK),
        (StretchView(None, 0.5, 0.9), 1.5, Reason.NO_MEASUREMENT),
        (StretchView(0.8, None, 0.9), 1.5, Reason.NO_MEASUREMENT),
        (StretchView(0.8, 0.5, 0.1), 1.0, Reason.KV_PRESSURE),
    ],
)
def test_what_is_measured_decides(view: StretchView, ratio: float, reason: Reason) -> None:
    memory = after(view, 1, after(AT_RISK, 1))
    assert (memory.ratio, memory.reason) == (ratio, reason)


def test_kv_pressure_does_not_wait() -> None:
    pressed = StretchView(0.8, 0.5, 0.1)
    assert STRETCH.decide(after(AT_RISK, 4), pressed, 4.1 * STRETCH_PERIOD_S).ratio == 1.0


@given(st.lists(st.tuples(ratios, ratios, st.floats(0.0, 1.0)), max_size=40))
def test_the_ratio_stays_between_its_bounds(views: list[tuple[float, float, float]]) -> None:
    memory = StretchMemory()
    for k, view in enumerate(views):
        memory = STRETCH.decide(memory, StretchView(*view), k * STRETCH_PERIOD_S)
        assert 1.0 <= memory.ratio <= STRETCH.most_ratio


@given(st.floats(0.951, 10.0), ratios)
def test_tpot_at_its_target_brings_the_cycle_back_to_it(
    tpot_ratio: float, ttft_ratio: float | None
) -> None:
    view = StretchView(1.0 if ttft_ratio is None else ttft_ratio, tpot_ratio, 0.9)
    assert after(view, 5, after(AT_RISK, 10)).ratio == 1.0
