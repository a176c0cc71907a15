"""Stages compute at the same time: pieces of one prompt, and the micro-batches of a full load."""

import random
from itertools import product
from pathlib import Path

import pytest

from held_worker import MODULE, Steps
from pipelineserve import metrics
from pipelineserve_engine.generation import SamplingParameters
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.stage_messages import StepReport
from real_pipeline import RealPipeline, a_plan
from served_model import ServedModel
from tiny_models import VOCABULARY_SIZE

PARTITIONS = {2: (2, 3), 3: (1, 3, 1), 4: (2, 1, 1, 1)}
NUM_TOKENS = 12


def a_prompt(seed: int, num_tokens: int) -> tuple[int, ...]:
    chance = random.Random(seed)
    return tuple(chance.randrange(VOCABULARY_SIZE) for _ in range(num_tokens))


def overlap(one: StepReport, other: StepReport) -> bool:
    return max(one.start_s, other.start_s) < min(one.end_s, other.end_s)


@pytest.mark.parametrize("num_stages", [2, 3])
def test_every_stage_computes_a_piece_of_the_same_prompt_at_the_same_time(
    served_model: ServedModel,
    num_stages: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each waits inside its piece until all are inside theirs; in turns, nobody would get there."""
    steps = Steps(tmp_path)
    steps.announce(monkeypatch)
    diagonal = [(stage, num_stages - 1 - stage) for stage in range(num_stages)]
    prompt = a_prompt(1, 70)
    plan = a_plan(served_model.folder, PARTITIONS[num_stages])
    with Nursery() as own, StageGroup(plan, own, MODULE) as group:
        group.start(lambda _: None)
        pipeline = RealPipeline(group, num_stages, chunk_tokens=7)
        for step in diagonal:
            steps.hold(*step)
        pipeline.submit({"r": prompt}, NUM_TOKENS)
        pipeline.fill()
        for step in diagonal:
            steps.wait_reached(*step)
        for step in diagonal:
            steps.release(*step)
        assert pipeline.run() == {"r": served_model.model.greedy(prompt, NUM_TOKENS)}
    reports = {(step.stage_index, step.sequence): step for step in pipeline.steps}
    assert all(overlap(reports[a], reports[b]) for a, b in product(diagonal, diagonal))


def test_under_load_every_stage_is_busy_and_they_do_not_take_turns(
    served_model: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Steps(tmp_path).announce(monkeypatch, repeats=10)
    prompts = {f"r{index}": a_prompt(index, 20 + 5 * index) for index in range(8)}
    plan = a_plan(served_model.folder, PARTITIONS[2])
    with Nursery() as own, StageGroup(plan, own, MODULE) as group:
        group.start(lambda _: None)
        pipeline = RealPipeline(group, 2, chunk_tokens=16)
        pipeline.submit(prompts, NUM_TOKENS)
        outputs = pipeline.run()
    assert outputs == {
        name: served_model.model.greedy(p, NUM_TOKENS) for name, p in prompts.items()
    }
    work_s = pipeline.value(metrics.WORK)
    busy_s = [pipeline.value(metrics.STAGE_BUSY, stage=stage) for stage in ("0", "1")]
    assert all(0 < stage_busy_s <= work_s for stage_busy_s in busy_s)
    assert sum(busy_s) > 1.1 * work_s  # in turns, they would sum up to the work at most
    by_stage = [[step for step in pipeline.steps if step.stage_index == i] for i in range(2)]
    shared = [any(overlap(step, other) for other in by_stage[0]) for step in by_stage[1]]
    assert sum(shared) > len(shared) / 2


@pytest.mark.parametrize("num_stages", [3, 4])
def test_any_number_of_requests_from_one_up_comes_to_its_end(
    served_model: ServedModel, nursery: Nursery, num_stages: int
) -> None:
    with StageGroup(a_plan(served_model.folder, PARTITIONS[num_stages]), nursery) as group:
        group.start(lambda _: None)
        for num_requests in range(1, num_stages + 2):
            pipeline = RealPipeline(group, num_stages, chunk_tokens=16)
            prompts = {f"r{i}": a_prompt(i, 3 + 17 * i) for i in range(num_requests)}
            pipeline.submit(prompts, NUM_TOKENS)
            assert pipeline.run() == {
                name: served_model.model.greedy(prompt, NUM_TOKENS)
                for name, prompt in prompts.items()
            }


def test_a_token_that_cannot_be_chosen_ends_its_request_alone_in_a_real_pipeline(
    served_model: ServedModel, nursery: Nursery
) -> None:
    prompts = {f"r{index}": a_prompt(index, 9 + index) for index in range(3)}
    impossible = SamplingParameters(temperature=0.0, logit_bias=((5, float("inf")),))
    with StageGroup(a_plan(served_model.folder, PARTITIONS[2]), nursery) as group:
        group.start(lambda _: None)
        pipeline = RealPipeline(group, 2)
        pipeline.submit(prompts, NUM_TOKENS)
        pipeline.submit({"broken": a_prompt(9, 12)}, NUM_TOKENS, impossible)
        outputs = pipeline.run()
    assert outputs == {
        name: served_model.model.greedy(p, NUM_TOKENS) for name, p in prompts.items()
    }
    ends = {
        outcome: pipeline.value(metrics.REQUESTS, outcome=outcome)
        for outcome in ("length", "error")
    }
    assert ends == {"length": 3, "error": 1}
