"""Stages that share a machine: as fast as the costs say together, faster alone."""

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
    options = PipelineOptions(timing=FreeRunning(ratio), faults=faults)
    plain = costs or PlainCosts(step_s=1.0)
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


def test_a_slowed_stage_among_sharing_ones_is_refused() -> None:
    with pytest.raises(ValueError, match="no slowed stages where stages share"):
        run(make_requests((0.0, 1, 1)), 2.0, faults=(StageSlowed(0, 2.0, 0.0, 1.0),))
