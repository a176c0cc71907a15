"""Silence and stalls are noticed; long steps, idleness and slow starts are no faults."""

import pytest

from pipelineserve_engine.watchdog import Patience, Watchdog


@pytest.fixture
def watchdog() -> Watchdog:
    """Two stages that have loaded."""
    watchdog = a_watchdog()
    watchdog.ready(0)
    watchdog.ready(1)
    return watchdog


def a_watchdog() -> Watchdog:
    return Watchdog(2, Patience(silence_s=5.0, loading_silence_s=30.0, stall_s=60.0, start_s=90.0))


def test_a_stage_that_loads_may_be_silent_for_longer() -> None:
    watchdog = a_watchdog()
    watchdog.hear(0, 10.0)
    watchdog.hear(1, 40.0)
    assert watchdog.fault(40.0) is None
    assert watchdog.fault(41.0) == "stage 0 was silent for 31.0 s"
    watchdog.hear(0, 41.0)
    watchdog.ready(0)
    assert watchdog.fault(46.5) == "stage 0 was silent for 5.5 s"


def test_a_stage_that_was_heard_and_falls_silent_is_named(watchdog: Watchdog) -> None:
    watchdog.hear(0, 10.0)
    watchdog.hear(1, 10.0)
    watchdog.hear(0, 16.0)
    assert watchdog.fault(15.0) is None
    assert watchdog.fault(16.5) == "stage 1 was silent for 6.5 s"


def test_a_stage_that_was_never_heard_is_still_starting_for_a_while(watchdog: Watchdog) -> None:
    watchdog.start(0, 100.0)
    watchdog.start(1, 100.0)
    watchdog.start(1, 150.0)  # only the first counts
    watchdog.hear(0, 190.0)
    assert watchdog.fault(190.0) is None
    watchdog.hear(0, 191.0)
    assert watchdog.fault(191.0) == "stage 1 gave no sign of life since it was started"
    watchdog.hear(1, 192.0)
    assert watchdog.fault(192.0) is None


def test_a_stage_whose_process_does_not_run_yet_is_no_fault() -> None:
    watchdog = a_watchdog()
    watchdog.start(0, 100.0)
    watchdog.hear(0, 1000.0)
    assert watchdog.fault(1000.0) is None
    watchdog.start(1, 1000.0)
    watchdog.hear(0, 1090.0)
    assert watchdog.fault(1090.0) is None
    watchdog.hear(0, 1091.0)
    assert watchdog.fault(1091.0) == "stage 1 gave no sign of life since it was started"


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


def test_its_state_says_of_each_stage_when_it_was_heard_and_what_it_ended(
    watchdog: Watchdog,
) -> None:
    watchdog.start_step(0.0)
    watchdog.start_step(0.0)
    watchdog.hear(0, 3.0)
    watchdog.end_step(0, 7, 3.0)
    assert watchdog.state(5.5) == (
        "2 micro-batches in flight; stage 0: heard 2.5 s ago, last ended step 7; "
        "stage 1: never heard, ended no step"
    )
