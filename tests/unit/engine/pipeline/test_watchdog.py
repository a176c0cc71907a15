"""Silence and stalls are noticed; long steps, idleness and slow starts are no faults."""

import pytest

from pipelineserve_engine.watchdog import Patience, Watchdog


@pytest.fixture
def watchdog() -> Watchdog:
    return Watchdog(2, Patience(silence_s=5.0, stall_s=60.0))


def test_a_stage_that_was_heard_and_falls_silent_is_named(watchdog: Watchdog) -> None:
    watchdog.hear(0, 10.0)
    watchdog.hear(1, 10.0)
    watchdog.hear(0, 16.0)
    assert watchdog.fault(15.0) is None
    assert watchdog.fault(16.5) == "stage 1 was silent for 6.5 s"


def test_a_stage_that_was_never_heard_is_still_starting(watchdog: Watchdog) -> None:
    watchdog.hear(0, 100.0)
    assert watchdog.fault(101.0) is None


def test_heartbeats_alone_do_not_hide_a_stall(watchdog: Watchdog) -> None:
    watchdog.start_step(0.0)
    watchdog.end_step(0, 0, 10.0)
    for now_s in range(70):
        watchdog.hear(0, float(now_s))
        watchdog.hear(1, float(now_s))
    assert watchdog.fault(70.0) is None
    watchdog.hear(0, 71.0)
    watchdog.hear(1, 71.0)
    assert watchdog.fault(71.0) == "no stage ended a step for 61.0 s although there was work"


def test_a_step_of_any_stage_is_progress(watchdog: Watchdog) -> None:
    watchdog.start_step(0.0)
    watchdog.start_step(1.0)
    watchdog.end_step(0, 0, 50.0)
    assert watchdog.fault(100.0) is None


def test_time_without_work_is_no_stall(watchdog: Watchdog) -> None:
    watchdog.start_step(0.0)
    watchdog.end_step(1, 0, 1.0)
    assert watchdog.fault(1000.0) is None
    watchdog.start_step(1000.0)
    assert watchdog.fault(1030.0) is None
