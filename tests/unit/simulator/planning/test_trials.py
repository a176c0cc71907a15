"""A deployment in the twin: its replicas share the load and are measured together."""

from dataclasses import replace

import pytest

from pipelineserve.load.targets import Target, Targets
from pipelineserve_simulator.measures.criteria import Latency
from pipelineserve_simulator.planning.layouts import Placed, Shape, place
from pipelineserve_simulator.planning.search import Question
from pipelineserve_simulator.planning.trials import (
    ChunkPolicyName,
    Conditions,
    Deployment,
    Trial,
    criterion,
    run_trial,
    together,
)
from plan_questions import question, steady_workload
from simulated_runs import request_outcome, run_of

QUESTION = question(workload=steady_workload(6.0, 30))


def trial(
    asked: Question = QUESTION,
    *,
    num_replicas: int = 1,
    policy: ChunkPolicyName = ChunkPolicyName.STATIC,
    static_tokens: int = 512,
    seed: int = 1,
) -> Trial:
    profile = asked.machine.profile
    placed = place(Shape(1, 4), asked.model, profile, asked.demand.longest_tokens)
    assert isinstance(placed, Placed)
    conditions = Conditions(
        profile, asked.workload, asked.targets, 2048, asked.demand.longest_tokens
    )
    return Trial(Deployment(placed, num_replicas, policy, static_tokens), conditions, seed)


def test_the_same_trial_gives_the_same_result_and_another_seed_another() -> None:
    assert run_trial(trial()) == run_trial(trial())
    assert run_trial(trial(seed=2)).ttft_s != run_trial(trial()).ttft_s


def test_all_requests_are_measured_whatever_the_replicas() -> None:
    one, three = run_trial(trial()), run_trial(trial(num_replicas=3))
    assert one.figures.num_arrived == three.figures.num_arrived
    assert three.figures.num_failed == 0
    # The rate is more than a replica's comfort.
    assert three.tpot_s < one.tpot_s


def test_the_fixed_chunk_is_the_one_that_was_asked_for() -> None:
    small, large = (run_trial(trial(static_tokens=tokens)) for tokens in (256, 1024))
    for result, tokens in ((small, 256), (large, 1024)):
        assert result.figures.steps is not None
        assert result.figures.steps.chunk_tokens.max == tokens
    assert small.tpot_s < large.tpot_s


def test_the_predictive_policy_takes_smaller_chunks_where_they_suffice() -> None:
    steps = run_trial(trial(policy=ChunkPolicyName.PREDICTIVE)).figures.steps
    assert steps is not None
    assert steps.chunk_tokens.p50 == 128


@pytest.mark.parametrize(
    ("targets", "meets"),
    [
        (Targets(Target(90, 100.0), Target(90, 100.0)), True),
        (Targets(Target(90, 0.001), None), False),
        (Targets(None, Target(90, 0.001)), False),
        (Targets(None, Target(90, 100.0)), True),
    ],
)
def test_every_target_that_there_is_must_be_met(targets: Targets, meets: bool) -> None:
    assert run_trial(trial(replace(QUESTION, targets=targets))).meets_targets is meets


def test_a_pool_without_room_shows_in_the_kv_that_is_used() -> None:
    whole = trial()
    placed = whole.deployment.placed
    narrow = tuple(
        replace(memory, usable_bytes=int(memory.weights_bytes) + 64 * 1024 * 5000)
        for memory in placed.memories
    )
    tight = replace(placed, memories=narrow)
    result = run_trial(replace(whole, deployment=replace(whole.deployment, placed=tight)))
    used = (result, run_trial(whole))
    assert used[0].figures.kv_used_ratio_max > 5 * used[1].figures.kv_used_ratio_max


def test_replicas_side_by_side_are_one_run_in_order_of_arrival() -> None:
    first = run_of([request_outcome(arrival_s=0.0), request_outcome(arrival_s=2.0)])
    second = run_of([request_outcome(arrival_s=1.0)], num_preemptions=2)
    both = together([replace(first, kv_used_ratio_max=0.9), second])
    assert [request.arrival_s for request in both.requests] == [0.0, 1.0, 2.0]
    assert (both.kv_used_ratio_max, both.kv_used_ratio_mean) == (0.9, 0.25)
    assert both.duration_s == max(first.duration_s, second.duration_s)
    assert both.num_preemptions == 2


def test_without_a_target_p90_is_shown_and_not_bound() -> None:
    shown = criterion(Latency.TPOT, None)
    assert (shown.percent, shown.bound_s) == (90, float("inf"))
    assert criterion(Latency.TPOT, Target(75, 0.1)).percent == 75
