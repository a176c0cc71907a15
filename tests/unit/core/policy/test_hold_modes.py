"""Who yields when the user leaves it to the controller."""

from pipelineserve.policy.control.hold_modes import AutoHoldMode
from pipelineserve.policy.rebalancing import HoldMode


def test_the_oldest_yield_near_the_target_and_the_newest_well_below_it() -> None:
    auto, mode, modes = AutoHoldMode(tpot_target_s=0.2), HoldMode.E2E_FIRST, []
    for tpot_s in (0.10, 0.17, 0.185, 0.17, 0.165, 0.155, None, 0.17):
        mode = auto.decide(mode, tpot_s)
        modes.append(mode)
    tpot, e2e = HoldMode.TPOT_FIRST, HoldMode.E2E_FIRST
    assert modes == [e2e, e2e, tpot, tpot, tpot, e2e, e2e, e2e]


def test_without_a_measurement_the_mode_stays() -> None:
    assert AutoHoldMode(0.2).decide(HoldMode.TPOT_FIRST, None) is HoldMode.TPOT_FIRST


def test_without_a_target_the_newest_yield() -> None:
    assert AutoHoldMode(None).decide(HoldMode.TPOT_FIRST, 9.0) is HoldMode.E2E_FIRST
