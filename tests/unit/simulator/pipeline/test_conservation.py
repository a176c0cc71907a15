"""What holds in every run: requests end, stages have one thing at a time, time only goes on."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelineserve.policy.schedule import Continuous, FillDrain, Schedule
from pipelineserve_simulator.hardware.description import NoiseCosts
from pipelineserve_simulator.hardware.noise import ProfileNoise
from pipelineserve_simulator.kernel.ticks import to_seconds
from pipelineserve_simulator.measures.runs import RunOutcome
from pipelineserve_simulator.pipeline.executor import run_pipeline
from pipelineserve_simulator.pipeline.faults import Fault, StageLost, StageSlowed
from pipelineserve_simulator.pipeline.options import (
    FreeRunning,
    Interleaved,
    LockStep,
    PipelineOptions,
    Timing,
)
from pipelineserve_simulator.pipeline.passage import Passage
from simulated_pipelines import PlainCosts, Watched, draw_requests, make_scheduler

TIMINGS: tuple[Timing, ...] = (
    FreeRunning(),
    LockStep(),
    Interleaved(num_workers=3),
    Interleaved(num_workers=1),
)
SCHEDULES: tuple[Schedule, ...] = (Continuous(), FillDrain())
NUM_STAGES = 3


def run_random(
    seed: int, timing: Timing, faults: tuple[Fault, ...] = ()
) -> tuple[RunOutcome, list[Passage]]:
    random, watched = Random(seed), Watched()
    noise = NoiseCosts(sigma_ratio=0.2, stall_ratio=0.1, stall_s=3.0)
    num_slots = NUM_STAGES if isinstance(timing, LockStep) else random.randint(1, 5)
    scheduler = make_scheduler(
        num_slots=num_slots,
        chunk_tokens=random.randint(4, 64),
        num_blocks=random.choice([50, 256]),
        schedule=random.choice(SCHEDULES),
    )
    costs = PlainCosts(
        NUM_STAGES,
        token_s=random.random(),
        hop_s=random.choice([0.0, random.random()]),
        leader_s=random.choice([0.0, random.random()]),
        back_s=random.choice([0.0, random.random()]),
    )
    options = PipelineOptions(
        timing=timing,
        noise=ProfileNoise(noise, Random(seed)),
        faults=faults,
        observe=watched.observe,
    )
    requests = draw_requests(random)
    outcome = run_pipeline(requests, scheduler, costs, options)
    asked = [(r.index, r.prompt_tokens, r.output_tokens) for r in requests]
    assert [(r.index, r.prompt_tokens, r.output_tokens) for r in outcome.requests] == asked
    assert all(request.is_success for request in outcome.requests)
    return outcome, watched.passages


def draw_faults(random: Random) -> tuple[Fault, ...]:
    slowed = [
        StageSlowed(random.randrange(NUM_STAGES), 1.0 + 5.0 * random.random(), start, start + 30.0)
        for start in (20.0 * random.random(), 50.0 * random.random())
    ]
    lost = [StageLost(0, 60.0 * random.random(), 30.0 * random.random()) for _ in range(2)]
    return (*slowed, *lost)


def worker_of(stage_index: int, timing: Timing) -> int:
    return stage_index % timing.num_workers if isinstance(timing, Interleaved) else stage_index


def busy_by_worker(
    passages: list[Passage], timing: Timing, of: Callable[[Passage, int], tuple[int, int]]
) -> list[list[tuple[int, int]]]:
    spans: list[list[tuple[int, int]]] = [[] for _ in range(NUM_STAGES)]
    for passage in passages:
        for stage_index in range(NUM_STAGES):
            spans[worker_of(stage_index, timing)].append(of(passage, stage_index))
    return [sorted(mine) for mine in spans]


@pytest.mark.parametrize("timing", TIMINGS, ids=repr)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**9), has_faults=st.booleans())
def test_every_request_ends_with_all_its_tokens(
    timing: Timing, seed: int, has_faults: bool
) -> None:
    faults = draw_faults(Random(seed)) if has_faults else ()
    outcome, _ = run_random(seed, timing, faults)
    for request in outcome.requests:
        assert request.first_token_s is not None
        assert request.last_token_s is not None
        assert request.arrival_s <= request.first_token_s <= request.last_token_s <= request.end_s
    assert outcome.duration_s == max(request.end_s for request in outcome.requests)
    assert 0.0 < outcome.kv_used_ratio_mean <= outcome.kv_used_ratio_max <= 1.0


@pytest.mark.parametrize("timing", TIMINGS, ids=repr)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**9), has_faults=st.booleans())
def test_no_stage_has_two_micro_batches_at_once_and_none_runs_backwards(
    timing: Timing, seed: int, has_faults: bool
) -> None:
    faults = draw_faults(Random(seed)) if has_faults else ()
    _, passages = run_random(seed, timing, faults)
    for passage in passages:
        moments = [passage.composed_ticks]
        for start, end in zip(passage.starts_ticks, passage.ends_ticks, strict=True):
            moments += [start, end]
        assert moments == sorted(moments)
    spans = busy_by_worker(passages, timing, lambda p, k: (p.starts_ticks[k], p.ends_ticks[k]))
    for mine in spans:
        for (_, end), (start, _) in pairwise(mine):
            assert end <= start


@pytest.mark.parametrize("timing", TIMINGS, ids=repr)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_bubbles_and_computation_fill_the_time_in_which_there_is_work(
    timing: Timing, seed: int
) -> None:
    outcome, passages = run_random(seed, timing)
    periods = periods_with_work(outcome)
    spans = busy_by_worker(
        passages,
        timing,
        lambda p, k: (p.starts_ticks[k] - p.bubbles_ticks[k], p.ends_ticks[k]),
    )
    for mine in filter(None, spans):
        pieces = list(mine)
        # Each idle time before a step begins where the step before ended, or with the work.
        assert all(before <= end for before, end in pieces)
        starts = {to_seconds(start) for start, _ in pieces}
        ends = {to_seconds(end) for _, end in pieces}
        assert starts - ends == {start_s for start_s, _ in periods}


def periods_with_work(outcome: RunOutcome) -> list[tuple[float, float]]:
    """From when until when any request was live."""
    periods: list[tuple[float, float]] = []
    for request in sorted(outcome.requests, key=lambda request: request.arrival_s):
        if periods and request.arrival_s < periods[-1][1]:
            periods[-1] = (periods[-1][0], max(periods[-1][1], request.end_s))
        else:
            periods.append((request.arrival_s, request.end_s))
    return periods


@pytest.mark.parametrize("timing", TIMINGS, ids=repr)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_same_seed_gives_the_same_bytes(timing: Timing, seed: int) -> None:
    faults = draw_faults(Random(seed))
    one, other = (run_random(seed, timing, faults)[0] for _ in range(2))
    assert pickle.dumps(one) == pickle.dumps(other)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**9), has_slow_stages=st.booleans())
def test_one_virtual_stage_per_worker_is_a_pipeline_that_runs_free(
    seed: int, has_slow_stages: bool
) -> None:
    slowed = [fault for fault in draw_faults(Random(seed)) if isinstance(fault, StageSlowed)]
    faults = tuple(slowed) if has_slow_stages else ()
    free, _ = run_random(seed, FreeRunning(), faults)
    interleaved, _ = run_random(seed, Interleaved(NUM_STAGES), faults)
    assert interleaved == free


def test_thinning_keeps_every_so_many_th_step_and_changes_nothing_else() -> None:
    random = Random(5)
    requests = draw_requests(random)

    def run(step_stride: int) -> RunOutcome:
        options = PipelineOptions(step_stride=step_stride)
        return run_pipeline(requests, make_scheduler(), PlainCosts(), options)

    whole = run(1)
    assert run(3) == replace(whole, steps=whole.steps[::3])
    assert run(0) == replace(whole, steps=())
