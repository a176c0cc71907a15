"""Stages that share a machine: as fast as the costs say together, faster alone."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_simulator.measures.runs import RunOutcome
from pipelineserve_simulator.pipeline.executor import run_pipeline
from pipelineserve_simulator.pipeline.faults import Fault, StageLost, StageSlowed
from pipelineserve_simulator.pipeline.options import FreeRunning, PipelineOptions
from pipelineserve_simulator.workloads.requests import SimulatedRequest
from simulated_pipelines import PlainCosts, draw_requests, make_requests, make_scheduler

# Small enough to be rounded away, large enough that it is another conveyor.
HARDLY = 1.0 + 1e-12


def run(
    requests: tuple[SimulatedRequest, ...],
    ratio: float,
    *,
    costs: PlainCosts | None = None,
    faults: tuple[Fault, ...] = (),
) -> RunOutcome:
    options = PipelineOptions(timing=FreeRunning(), faults=faults)
    plain = replace(costs or PlainCosts(step_s=1.0), sharing_ratio=ratio)
    return run_pipeline(requests, make_scheduler(num_slots=plain.num_stages), plain, options)


def test_one_that_is_alone_runs_at_full_speed() -> None:
    outcome = run(make_requests((0.0, 10, 3)), 2.0)
    assert [step.stage_times_s for step in outcome.steps] == [(0.5, 0.5)] * 3
    assert outcome.requests[0].ttft_s == 1.0


def test_two_that_always_compute_together_take_what_the_costs_say() -> None:
    # Prompts of two whole chunks each: while stage 1 has one, stage 0 has the next.
    outcome = run(make_requests(*[(0.0, 64, 1)] * 8), 2.0)
    for step in outcome.steps[1:-1]:
        assert step.stage_times_s == (1.0, 1.0)
    assert outcome.steps[0].stage_times_s[0] == 0.5


def test_who_is_joined_half_way_slows_down_from_there() -> None:
    # Alone for 0.25 s, so half done; the rest takes twice as long.
    costs = PlainCosts(step_s=1.0, leader_s=0.75)
    outcome = run(make_requests((0.0, 64, 1), (0.0, 64, 1)), 2.0, costs=costs)
    first, second = outcome.steps
    # 0.75 to 1.25 on stage 0, then on stage 1; the second begins on stage 0 at 1.5.
    assert first.stage_times_s[0] == 0.5
    assert first.stage_times_s[1] == pytest.approx(0.25 + 0.5)
    assert second.stage_times_s[0] == pytest.approx(0.5 + 0.25)


@given(st.integers(0, 10**9), st.integers(1, 4))
def test_without_sharing_it_is_the_other_conveyor(seed: int, num_stages: int) -> None:
    requests = draw_requests(Random(seed))
    costs = PlainCosts(num_stages, 0.5, 0.01, 0.02, 0.03, 0.01)
    assert run(requests, HARDLY, costs=costs) == run(requests, 1.0, costs=costs)


@given(st.integers(0, 10**9), st.floats(1.01, 3.0))
def test_everybody_is_served_and_no_step_is_faster_than_alone(seed: int, ratio: float) -> None:
    requests = draw_requests(Random(seed))
    costs = PlainCosts(3, 0.5, 0.0, 0.02, 0.03, 0.01)
    lost: tuple[Fault, ...] = (StageLost(1, 3.0, 2.0),)
    outcome = run(requests, ratio, costs=costs, faults=lost)
    assert [request.output_tokens for request in outcome.requests] == [
        request.output_tokens for request in requests
    ]
    for step in outcome.steps:
        for time_s, bubble_s in zip(step.stage_times_s, step.bubbles_s, strict=True):
            assert 0.5 / ratio - 1e-8 <= time_s <= 0.5 + 1e-8
            assert bubble_s >= 0.0


def test_a_stage_that_becomes_slow_half_way_takes_as_many_times_as_long_from_there() -> None:
    slowed = (StageSlowed(0, factor=3.0, start_s=0.25, end_s=10.0),)
    outcome = run(make_requests((0.0, 10, 1)), 2.0, faults=slowed)
    # Alone, so half a second of work: one half of it before, the other at a third of the speed.
    assert outcome.steps[0].stage_times_s == (0.25 + 0.75, 0.5)


def test_a_stage_is_at_full_speed_again_once_the_fault_is_over() -> None:
    slowed = (StageSlowed(0, factor=2.0, start_s=0.0, end_s=0.5),)
    outcome = run(make_requests((0.0, 10, 1)), 2.0, faults=slowed)
    assert outcome.steps[0].stage_times_s == (0.5 + 0.25, 0.5)


def test_a_stage_stays_slow_when_another_is_lost_meanwhile() -> None:
    slowed = StageSlowed(0, factor=2.0, start_s=0.0, end_s=100.0)
    outcome = run(make_requests((0.0, 10, 1)), 2.0, faults=(slowed, StageLost(1, 0.2, 5.0)))
    assert [step.stage_times_s for step in outcome.steps] == [(1.0, 0.5)]


def test_others_share_with_a_slow_stage_for_as_long_as_it_computes() -> None:
    # Both prompts on their way: stage 1 has the first while stage 0, slow, has the second.
    slowed = (StageSlowed(0, factor=2.0, start_s=1.0, end_s=100.0),)
    outcome = run(make_requests(*[(0.0, 64, 1)] * 2), 2.0, faults=slowed)
    first, second = outcome.steps
    # Until 0.5 alone on stage 0; together until 1, half of both done; then stage 0 at half speed.
    assert first.stage_times_s == (0.5, 1.0)
    # Of the half that is left one half until 1.5, the other one alone on the machine.
    assert second.stage_times_s[0] == pytest.approx(0.5 + 0.5 + 0.25)


@given(st.integers(0, 10**9), st.floats(1.01, 3.0), st.floats(1.0, 4.0))
def test_a_slow_stage_is_never_faster_than_alone_nor_slower_than_slowed_and_shared(
    seed: int, ratio: float, factor: float
) -> None:
    requests = draw_requests(Random(seed))
    costs = PlainCosts(3, 0.5, 0.0, 0.02, 0.03, 0.01)
    slowed = (StageSlowed(1, factor, 2.0, 30.0), StageSlowed(1, factor, 40.0, 41.0))
    outcome = run(requests, ratio, costs=costs, faults=slowed)
    assert all(request.is_success for request in outcome.requests)
    for step in outcome.steps:
        for stage_index, time_s in enumerate(step.stage_times_s):
            longest_s = 0.5 * factor if stage_index == 1 else 0.5
            assert 0.5 / ratio - 1e-8 <= time_s <= longest_s + 1e-8
