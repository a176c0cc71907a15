"""Requests whose KV was on the host meanwhile give the tokens that they give without."""

import random
from functools import cache

import pytest

from inline_engine import InlineEngine, an_inline_engine
from pipelineserve.policy.preemption import (
    AlwaysRecompute,
    AlwaysSwap,
    ByCost,
    KvCosts,
    Preemption,
    PreemptionPolicy,
)
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.schedule import Continuous, FillDrain, Schedule
from pipelineserve_engine.generation import GREEDY, SamplingParameters
from pipelineserve_engine.stage_messages import ReadyReport
from tiny_models import VOCABULARY_SIZE, TinyModel

NUM_TOKENS = 20
LENGTHS = (30, 31, 29, 33, 12)
PARTITIONS = {1: (5,), 2: (2, 3), 3: (1, 3, 1)}
PENALISED = SamplingParameters(
    temperature=0.9,
    top_p=0.95,
    seed=11,
    repetition_penalty=1.2,
    frequency_penalty=0.3,
    presence_penalty=0.2,
)
SAMPLINGS = {"greedy": GREEDY, "sampled and penalised": PENALISED}


def some_prompts(seed: int = 4, lengths: tuple[int, ...] = LENGTHS) -> dict[str, list[int]]:
    chance = random.Random(seed)
    return {
        f"r{index}": [chance.randrange(VOCABULARY_SIZE) for _ in range(length)]
        for index, length in enumerate(lengths)
    }


def a_tight_engine(
    model: TinyModel,
    num_stages: int,
    *,
    schedule: Schedule | None = None,
    extra_slots: int = 0,
    num_blocks: int = 12,
    chunk_tokens: int = 16,
    preemption: PreemptionPolicy | None = None,
) -> InlineEngine:
    """The pool holds two requests or three of those that there are."""
    return an_inline_engine(
        model.folder,
        PARTITIONS[num_stages],
        chunk_tokens=chunk_tokens,
        num_blocks=num_blocks,
        max_context_tokens=80,
        extra_slots=extra_slots,
        schedule=schedule,
        num_host_blocks=64,
        preemption=preemption or AlwaysSwap(),
    )


def submit_all(
    engine: InlineEngine, prompts: dict[str, list[int]], sampling: SamplingParameters = GREEDY
) -> None:
    for name, prompt in prompts.items():
        engine.submit(name, prompt, NUM_TOKENS, sampling)


def alone(
    model: TinyModel, prompts: dict[str, list[int]], sampling: SamplingParameters = GREEDY
) -> dict[str, list[int]]:
    """Each request without company, on one stage, in a pool that is large enough."""
    return {name: output_alone(model, tuple(prompt), sampling) for name, prompt in prompts.items()}


@cache
def output_alone(
    model: TinyModel, prompt: tuple[int, ...], sampling: SamplingParameters
) -> list[int]:
    if sampling is GREEDY:
        return model.greedy(prompt, NUM_TOKENS)
    engine = an_inline_engine(model.folder, PARTITIONS[1])
    engine.submit("alone", prompt, NUM_TOKENS, sampling)
    return engine.run()["alone"]


def step_until_swapped(engine: InlineEngine) -> str:
    """Step until KV lies on the host; return whose."""
    for _ in range(500):
        swapped = [r for r in engine.core.scheduler._live.values() if r.host_block_ids]
        if swapped:
            return swapped[0].request_id
        engine.step()
    pytest.fail("nobody was swapped")


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
@pytest.mark.parametrize("num_stages", PARTITIONS)
@pytest.mark.parametrize("chunk_tokens", [5, 16, 1024])
def test_swap_changes_nothing(
    llama: TinyModel, num_stages: int, sampling: SamplingParameters, chunk_tokens: int
) -> None:
    engine = a_tight_engine(llama, num_stages, chunk_tokens=chunk_tokens)
    submit_all(engine, some_prompts(), sampling)
    assert engine.run() == alone(llama, some_prompts(), sampling)
    assert engine.core.scheduler.tally.swaps > 0


@pytest.mark.parametrize("num_stages", PARTITIONS)
@pytest.mark.parametrize(
    ("schedule", "extra_slots"), [(Continuous(), 1), (FillDrain(), 0), (FillDrain(), 1)]
)
def test_other_schedules_and_one_slot_more_change_nothing(
    llama: TinyModel, num_stages: int, schedule: Schedule, extra_slots: int
) -> None:
    engine = a_tight_engine(llama, num_stages, schedule=schedule, extra_slots=extra_slots)
    submit_all(engine, some_prompts())
    assert engine.run() == alone(llama, some_prompts())
    assert engine.core.scheduler.tally.swaps > 0


@pytest.mark.parametrize("num_stages", PARTITIONS)
def test_prefixes_in_common_change_nothing(llama: TinyModel, num_stages: int) -> None:
    shared = some_prompts(2, (26,))["r0"]
    tails = some_prompts(3, (3, 7, 1, 9))
    prompts = {
        name: shared[: 26 - index] + tail for index, (name, tail) in enumerate(tails.items())
    }
    prompts["same"] = list(prompts["r0"])
    engine = a_tight_engine(llama, num_stages, num_blocks=10)
    submit_all(engine, prompts)
    assert engine.run() == alone(llama, prompts)
    assert engine.core.scheduler.tally.swaps > 0
    assert engine.core.scheduler.tally.cached_tokens > 0


@pytest.mark.parametrize("num_stages", PARTITIONS)
def test_cancelling_one_whose_kv_is_on_the_host_changes_nothing_for_others(
    llama: TinyModel, num_stages: int
) -> None:
    engine = a_tight_engine(llama, num_stages)
    submit_all(engine, some_prompts())
    cancelled = step_until_swapped(engine)
    engine.core.cancel(cancelled, engine.now_s)
    outputs = engine.run()
    expected = alone(llama, some_prompts())
    for name in expected.keys() - {cancelled}:
        assert outputs[name] == expected[name]
    assert outputs[cancelled] == expected[cancelled][: len(outputs[cancelled])]
    assert engine.core.scheduler.kv.host.num_taken == 0


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
@pytest.mark.parametrize("num_stages", PARTITIONS)
def test_losing_the_stages_while_kv_is_on_the_host_changes_nothing(
    llama: TinyModel, num_stages: int, sampling: SamplingParameters
) -> None:
    engine = a_tight_engine(llama, num_stages)
    submit_all(engine, some_prompts(), sampling)
    step_until_swapped(engine)
    for stage in engine.executor._stages:
        stage._model._cache._host.fill_(float("nan"))  # new stages know nothing of it
        stage._model._cache._tensor.fill_(float("nan"))
    engine.executor.restart()
    engine.core.recall_all()
    assert engine.run() == alone(llama, some_prompts(), sampling)
    assert engine.core.scheduler.tally.swaps > 0


@pytest.mark.parametrize(
    ("copy_s_per_block", "kind", "reason"),
    [
        (1e-6, Preemption.SWAP, Reason.SWAP_IS_CHEAPER),
        (1e6, Preemption.RECOMPUTE, Reason.RECOMPUTE_IS_CHEAPER),
        (0.0, Preemption.RECOMPUTE, Reason.COSTS_NOT_MEASURED),
    ],
)
def test_what_the_stages_measured_decides(
    llama: TinyModel, copy_s_per_block: float, kind: Preemption, reason: Reason
) -> None:
    engine = a_tight_engine(llama, 2, preemption=ByCost())
    for stage_index in range(2):
        engine.core.absorb(ReadyReport(stage_index, 0, 0, 0, copy_s_per_block), 0.0)
    submit_all(engine, some_prompts())
    assert engine.run() == alone(llama, some_prompts())
    decisions = engine.core.scheduler.tally.preemption_decisions
    assert {(d.preemption, d.reason) for d in decisions} == {(kind, reason)}


def test_swapping_computes_less_than_recomputing(llama: TinyModel) -> None:
    """Counted in tokens that the stages had to compute, for the same outputs."""

    def num_computed(preemption: PreemptionPolicy) -> float:
        engine = a_tight_engine(llama, 1, preemption=preemption)
        submit_all(engine, some_prompts())
        engine.run()
        total = engine.registry.get_sample_value("pipelineserve_micro_batch_tokens_sum")
        assert total is not None
        return total

    assert num_computed(AlwaysSwap()) < num_computed(AlwaysRecompute())


def test_costs_are_none_until_a_prompt_was_computed(llama: TinyModel) -> None:
    engine = a_tight_engine(llama, 1)
    assert engine.core._kv_costs.costs == KvCosts()
    submit_all(engine, some_prompts())
    engine.run()
    assert engine.core._kv_costs.costs.recompute_s_per_token is not None
