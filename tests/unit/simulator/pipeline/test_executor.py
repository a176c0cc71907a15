"""What a run refuses, and what it offers to a controller."""

import pytest

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.schedule import FillDrain
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_simulator.pipeline.executor import run_pipeline
from pipelineserve_simulator.pipeline.options import (
    ControlTurns,
    Interleaved,
    LockStep,
    PipelineOptions,
)
from scheduling import make_settings
from simulated_pipelines import PlainCosts, Watched, make_requests, make_scheduler

REQUESTS = make_requests((0.0, 40, 3), (2.0, 40, 3))


def test_a_scheduler_that_shares_prefixes_is_refused() -> None:
    scheduler = Scheduler(make_settings(), Static(8))
    with pytest.raises(ValueError, match="set shares_prefixes=False"):
        run_pipeline(REQUESTS, scheduler, PlainCosts(), PipelineOptions())


def test_requests_that_are_not_in_order_are_refused() -> None:
    with pytest.raises(ValueError, match="sort them by arrival_s"):
        run_pipeline(REQUESTS[::-1], make_scheduler(), PlainCosts(), PipelineOptions())


def test_lock_step_needs_a_slot_for_each_stage() -> None:
    options = PipelineOptions(timing=LockStep())
    with pytest.raises(ValueError, match="one slot for each of 2 stages, got 3"):
        run_pipeline(REQUESTS, make_scheduler(num_slots=3), PlainCosts(), options)


def test_virtual_stages_must_fill_the_workers() -> None:
    options = PipelineOptions(timing=Interleaved(num_workers=2))
    with pytest.raises(ValueError, match="expected the 3 virtual stages to be a multiple"):
        run_pipeline(REQUESTS, make_scheduler(), PlainCosts(3), options)


def test_a_request_that_does_not_fit_is_rejected_and_the_others_are_served() -> None:
    requests = make_requests((0.0, 300, 3), (0.0, 8, 3))
    outcome = run_pipeline(requests, make_scheduler(), PlainCosts(), PipelineOptions())
    assert [request.is_success for request in outcome.requests] == [False, True]
    assert (outcome.requests[0].first_token_s, outcome.requests[0].end_s) == (None, 0.0)


def test_a_controller_takes_its_turns_while_there_is_work_and_its_policy_counts_at_once() -> None:
    scheduler = make_scheduler(chunk_tokens=64)
    turns_s: list[float] = []

    def take(now_s: float) -> None:
        turns_s.append(now_s)
        scheduler.adopt(SchedulingPolicy(Static(10)))

    heard = Watched()
    control = ControlTurns(1.5, take, heard.observe)
    outcome = run_pipeline(REQUESTS, scheduler, PlainCosts(), PipelineOptions(control=control))
    assert turns_s == [1.5 * (index + 1) for index in range(len(turns_s))]
    assert outcome.duration_s - 1.5 <= turns_s[-1] <= outcome.duration_s
    chunks = [(step.start_s < 1.5, step.chunk_tokens) for step in outcome.steps]
    assert set(chunks) == {(True, 64), (False, 10)}
    assert len(heard.passages) == len(outcome.steps)
    assert len(heard.emissions) == 6


def test_fill_and_drain_lets_the_pipeline_run_empty_between_rounds() -> None:
    requests = make_requests(*[(0.0, 4, 10)] * 4)

    def mean_bubble_s(scheduler: Scheduler) -> float:
        outcome = run_pipeline(requests, scheduler, PlainCosts(), PipelineOptions())
        return sum(step.bubbles_s[0] for step in outcome.steps) / len(outcome.steps)

    assert mean_bubble_s(make_scheduler()) < 0.1
    # Two steps of a second each, then the second one's way through the last stage.
    assert mean_bubble_s(make_scheduler(schedule=FillDrain())) == pytest.approx(0.5, abs=0.1)


def test_requests_that_run_out_of_blocks_are_preempted_and_counted() -> None:
    requests = make_requests(*[(0.0, 40, 40)] * 3)
    scheduler = make_scheduler(num_blocks=40)
    outcome = run_pipeline(requests, scheduler, PlainCosts(), PipelineOptions())
    assert outcome.num_preemptions == sum(request.num_requeues for request in outcome.requests)
    assert outcome.num_preemptions > 0
    assert outcome.kv_used_ratio_max > 0.9
