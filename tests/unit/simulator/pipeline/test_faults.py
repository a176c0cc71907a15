"""Stages that are slow for a while, and stages that are lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_simulator.kernel.ticks import TICKS_PER_S, to_seconds
from pipelineserve_simulator.pipeline.executor import run_pipeline
from pipelineserve_simulator.pipeline.faults import SlowedStages, StageLost, StageSlowed
from pipelineserve_simulator.pipeline.options import (
    FreeRunning,
    Interleaved,
    LockStep,
    PipelineOptions,
    Timing,
)
from simulated_pipelines import PlainCosts, Watched, make_requests, make_scheduler

SLOW = StageSlowed(stage_index=1, factor=2.0, start_s=10.0, end_s=20.0)
TIMINGS: tuple[Timing, ...] = (FreeRunning(), LockStep(), Interleaved(num_workers=2))


def end_s(slowed: SlowedStages, start_s: float, work_s: float, stage_index: int = 1) -> float:
    ticks = slowed.end_ticks(
        stage_index, round(start_s * TICKS_PER_S), max(1, round(work_s * TICKS_PER_S))
    )
    return to_seconds(ticks)


@pytest.mark.parametrize(
    ("start_s", "work_s", "expected_s"),
    [
        (0.0, 5.0, 5.0),  # over before
        (0.0, 10.0, 10.0),
        (8.0, 4.0, 14.0),  # two seconds before, two that take four
        (10.0, 5.0, 20.0),
        (12.0, 6.0, 22.0),  # four while it is slow, two after
        (20.0, 3.0, 23.0),
    ],
)
def test_work_takes_longer_while_its_stage_is_slow(
    start_s: float, work_s: float, expected_s: float
) -> None:
    assert end_s(SlowedStages([SLOW]), start_s, work_s) == expected_s


def test_other_stages_are_not_slowed() -> None:
    assert end_s(SlowedStages([SLOW]), 10.0, 5.0, stage_index=0) == 15.0


def test_of_two_that_overlap_the_slower_one_counts() -> None:
    slowed = SlowedStages([SLOW, StageSlowed(1, factor=4.0, start_s=12.0, end_s=16.0)])
    # One second until 12, one until 16, one and a half until 19.
    assert end_s(slowed, 10.0, 3.5) == 19.0


@given(
    st.lists(
        st.tuples(st.floats(1.0, 5.0), st.floats(0.0, 30.0), st.floats(0.1, 30.0)), max_size=4
    ),
    st.floats(0.0, 60.0),
    st.floats(0.0, 5.0),
    st.floats(0.0, 20.0),
)
def test_who_begins_later_with_the_same_work_never_ends_earlier(
    rows: list[tuple[float, float, float]], start_s: float, later_s: float, work_s: float
) -> None:
    slowed = SlowedStages([StageSlowed(1, factor, at, at + length) for factor, at, length in rows])
    first_s = end_s(slowed, start_s, work_s)
    assert first_s >= start_s + work_s - 1e-8
    assert end_s(slowed, start_s + later_s, work_s) >= first_s - 1e-8


@pytest.mark.parametrize("timing", TIMINGS, ids=repr)
def test_a_slow_stage_shows_in_its_own_step_times_only(timing: Timing) -> None:
    requests = make_requests((0.0, 8, 30))
    options = PipelineOptions(timing=timing, faults=(SLOW,))
    outcome = run_pipeline(requests, make_scheduler(), PlainCosts(), options)
    slow = [step for step in outcome.steps if step.stage_times_s[1] > 1.0]
    assert [step.stage_times_s for step in slow] == [(1.0, 2.0)] * len(slow)
    assert all(9.0 <= step.start_s <= 20.0 for step in slow)
    assert 3 <= len(slow) <= 5


@pytest.mark.parametrize("timing", TIMINGS, ids=repr)
def test_nothing_is_sent_while_a_stage_is_lost_and_requests_go_on_from_their_tokens(
    timing: Timing,
) -> None:
    watched = Watched()
    options = PipelineOptions(
        timing=timing,
        faults=(StageLost(stage_index=0, at_s=10.5, down_s=50.0),),
        observe=watched.observe,
    )
    requests = make_requests((0.0, 8, 12), (1.0, 8, 12))
    outcome = run_pipeline(requests, make_scheduler(), PlainCosts(), options)
    composed_s = [to_seconds(passage.composed_ticks) for passage in watched.passages]
    assert [moment for moment in composed_s if 10.5 <= moment < 60.5] == []
    for request in outcome.requests:
        assert (request.output_tokens, request.num_requeues) == (12, 1)
        assert 50.0 < request.longest_gap_s < 60.0
        assert request.end_s < 90.0


def test_a_second_loss_does_not_bring_the_first_back_early() -> None:
    watched = Watched()
    faults = (StageLost(0, at_s=5.0, down_s=100.0), StageLost(1, at_s=6.0, down_s=1.0))
    options = PipelineOptions(faults=faults, observe=watched.observe)
    run_pipeline(make_requests((0.0, 8, 12)), make_scheduler(), PlainCosts(), options)
    composed_s = [to_seconds(passage.composed_ticks) for passage in watched.passages]
    assert min(moment for moment in composed_s if moment > 5.0) == 105.0


@pytest.mark.parametrize(
    ("factor", "start_s", "final_s"), [(0.5, 0.0, 1.0), (2.0, 1.0, 1.0), (2.0, -1.0, 1.0)]
)
def test_a_fault_that_makes_no_sense_is_refused(
    factor: float, start_s: float, final_s: float
) -> None:
    with pytest.raises(ValueError, match="expected a factor of at least 1 and an end after"):
        StageSlowed(0, factor, start_s, final_s)
