"""Greedy output equals transformers' own, token for token, however the work is cut."""

import random
from collections.abc import Callable, Mapping

import pytest
import torch
from safetensors.torch import load_file, save_file

from inline_engine import an_inline_engine
from pipelineserve.policy.schedule import Continuous, FillDrain, Schedule
from tiny_models import VOCABULARY_SIZE, Architecture, TinyModel

NUM_TOKENS = 12
LENGTHS = (1, 3, 17, 40, 9)
PARTITIONS = {1: (5,), 2: (2, 3), 3: (1, 3, 1), 4: (2, 1, 1, 1)}
WHOLE_PROMPT = 1024

MakeModel = Callable[[Architecture, bool], TinyModel]


def some_prompts(seed: int, lengths: tuple[int, ...]) -> dict[str, list[int]]:
    chance = random.Random(seed)
    return {
        f"r{index}": [chance.randrange(VOCABULARY_SIZE) for _ in range(length)]
        for index, length in enumerate(lengths)
    }


def reference_of(model: TinyModel, prompts: Mapping[str, list[int]]) -> dict[str, list[int]]:
    return {name: model.greedy(prompt, NUM_TOKENS) for name, prompt in prompts.items()}


@pytest.mark.parametrize("architecture", Architecture)
@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("num_stages", PARTITIONS)
def test_mixed_batches_equal_the_reference(
    tiny_model: MakeModel, architecture: Architecture, is_tied: bool, num_stages: int
) -> None:
    model = tiny_model(architecture, is_tied)
    prompts = some_prompts(1, LENGTHS)
    reference = reference_of(model, prompts)
    for chunk_tokens in (1, 7, 64, WHOLE_PROMPT):
        engine = an_inline_engine(model.folder, PARTITIONS[num_stages], chunk_tokens=chunk_tokens)
        for name, prompt in prompts.items():
            engine.submit(name, prompt, NUM_TOKENS)
        assert engine.run() == reference, f"chunk {chunk_tokens}"


def test_the_references_differ_from_prompt_to_prompt(llama: TinyModel) -> None:
    """Else equality would show nothing."""
    outputs = reference_of(llama, some_prompts(1, LENGTHS))
    assert len({tuple(output) for output in outputs.values()}) == len(outputs)
    assert all(len(set(output)) > 4 for output in outputs.values())


@pytest.mark.parametrize("architecture", Architecture)
@pytest.mark.parametrize("num_stages", PARTITIONS)
@pytest.mark.parametrize("chunk_tokens", [7, WHOLE_PROMPT])
def test_prefix_hits_change_nothing(
    tiny_model: MakeModel, architecture: Architecture, num_stages: int, chunk_tokens: int
) -> None:
    model = tiny_model(architecture, True)
    shared = some_prompts(2, (50,))["r0"]
    prompts = {
        name: shared[: 50 - index] + tail
        for index, (name, tail) in enumerate(some_prompts(3, (5, 1, 9, 30)).items())
    }
    prompts["same"] = list(prompts["r0"])
    engine = an_inline_engine(model.folder, PARTITIONS[num_stages], chunk_tokens=chunk_tokens)
    for name, prompt in prompts.items():
        engine.submit(name, prompt, NUM_TOKENS)
        engine.step()
    assert engine.run() == reference_of(model, prompts)
    assert engine.core.scheduler.tally.cached_tokens > 0


@pytest.mark.parametrize("architecture", Architecture)
@pytest.mark.parametrize("num_stages", PARTITIONS)
def test_preemption_changes_nothing(
    tiny_model: MakeModel, architecture: Architecture, num_stages: int
) -> None:
    model = tiny_model(architecture, True)
    prompts = some_prompts(4, (30, 31, 29, 33, 12))
    engine = an_inline_engine(
        model.folder, PARTITIONS[num_stages], chunk_tokens=16, num_blocks=9, max_context_tokens=60
    )
    for name, prompt in prompts.items():
        engine.submit(name, prompt, NUM_TOKENS)
    assert engine.run() == reference_of(model, prompts)
    assert engine.core.scheduler.tally.preemptions > 0


def test_arrivals_and_cancellations_in_the_middle_change_nothing_for_others(
    llama: TinyModel,
) -> None:
    prompts = some_prompts(5, (20, 45, 9, 33, 60, 14))
    engine = an_inline_engine(llama.folder, PARTITIONS[3], chunk_tokens=11)
    for index, (name, prompt) in enumerate(prompts.items()):
        engine.submit(name, prompt, NUM_TOKENS)
        engine.submit(f"doomed-{name}", prompt[::-1], NUM_TOKENS)
        engine.step()
        if index > 0:
            engine.core.cancel(f"doomed-r{index - 1}", engine.now_s)
    engine.core.cancel("doomed-r5", engine.now_s)
    outputs = engine.run()
    assert {name: outputs[name] for name in prompts} == reference_of(llama, prompts)


def test_scattered_contexts_equal_the_reference(llama: TinyModel) -> None:
    """A pool in use gives out blocks that do not lie side by side."""
    engine = an_inline_engine(llama.folder, PARTITIONS[2], chunk_tokens=24, num_blocks=40)
    for wave in range(6):
        for name, prompt in some_prompts(wave, (5, 23, 41)).items():
            engine.submit(f"{wave}-{name}", prompt, NUM_TOKENS)
            engine.step()
    engine.run()
    prompts = some_prompts(99, (80, 70))
    for name, prompt in prompts.items():
        engine.submit(name, prompt, NUM_TOKENS)
    outputs = engine.run()
    assert {name: outputs[name] for name in prompts} == reference_of(llama, prompts)


@pytest.mark.parametrize("num_stages", PARTITIONS)
def test_a_tied_model_that_stores_a_head_uses_the_embedding(
    llama: TinyModel, tmp_path_factory: pytest.TempPathFactory, num_stages: int
) -> None:
    folder = tmp_path_factory.mktemp("tied-with-head")
    for file in llama.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in weights
    weights["lm_head.weight"] = torch.zeros_like(weights["model.embed_tokens.weight"])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    engine = an_inline_engine(folder, PARTITIONS[num_stages])
    prompts = some_prompts(6, (19,))
    engine.submit("r0", prompts["r0"], NUM_TOKENS)
    assert engine.run() == reference_of(llama, prompts)


@pytest.mark.parametrize("num_stages", [2, 3])
@pytest.mark.parametrize(
    ("schedule", "extra_slots"), [(Continuous(), 1), (FillDrain(), 0), (FillDrain(), 1)]
)
def test_other_schedules_and_one_slot_more_change_nothing(
    llama: TinyModel, num_stages: int, schedule: Schedule, extra_slots: int
) -> None:
    prompts = some_prompts(7, (20, 45, 9, 33))
    engine = an_inline_engine(
        llama.folder,
        PARTITIONS[num_stages],
        chunk_tokens=11,
        num_blocks=16,
        max_context_tokens=100,
        extra_slots=extra_slots,
        schedule=schedule,
    )
    for name, prompt in prompts.items():
        engine.submit(name, prompt, NUM_TOKENS)
        engine.step()
    assert engine.run() == reference_of(llama, prompts)
