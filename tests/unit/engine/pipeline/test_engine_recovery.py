"""A pipeline whose stages failed pauses, loads, serves again, or is given up."""

import pytest

from pipelineserve.policy.recovery import RecoveryBudget
from pipelineserve_engine.recovery import Phase, Recovery


@pytest.fixture
def recovery() -> Recovery:
    return Recovery(RecoveryBudget(max_restarts=2, window_s=100.0, first_pause_s=1.0), num_stages=2)


def phase_of(recovery: Recovery) -> Phase:
    return recovery.phase


def test_it_serves_from_the_start(recovery: Recovery) -> None:
    assert phase_of(recovery) is Phase.SERVING
    assert recovery.seconds_to_restart(0.0) is None


def test_after_a_failure_it_pauses_then_loads_until_every_stage_is_ready(
    recovery: Recovery,
) -> None:
    recovery.fail("stage 1 ended", 10.0)
    assert phase_of(recovery) is Phase.PAUSING
    assert recovery.seconds_to_restart(10.4) == pytest.approx(0.6)
    assert recovery.seconds_to_restart(11.5) == 0.0
    recovery.restart()
    recovery.stage_ready()
    assert phase_of(recovery) is Phase.LOADING
    recovery.stage_ready()
    assert phase_of(recovery) is Phase.SERVING
    assert recovery.cause == "stage 1 ended"


def test_a_failure_while_loading_counts_and_starts_the_pause_anew(recovery: Recovery) -> None:
    recovery.fail("first", 0.0)
    recovery.restart()
    recovery.stage_ready()
    recovery.fail("second", 5.0)
    assert recovery.seconds_to_restart(5.0) == 2.0
    recovery.restart()
    recovery.stage_ready()
    assert phase_of(recovery) is Phase.LOADING


def test_the_failure_beyond_the_budget_is_not_followed_by_a_restart(recovery: Recovery) -> None:
    decisions = [recovery.fail("again", float(at_s)) for at_s in range(3)]
    assert [decision.restart_at_s is None for decision in decisions] == [False, False, True]
