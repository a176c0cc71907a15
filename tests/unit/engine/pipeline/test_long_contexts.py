"""Prompts that nearly fill the model's context, cut into pieces."""

import random

import pytest

from inline_engine import BLOCK_TOKENS, an_inline_engine
from pipelineserve.policy.preemption import AlwaysSwap
from pipelineserve.scheduler.messages import Rejected, RejectReason
from pipelineserve_engine.generation import GenerationRequest
from tiny_models import VOCABULARY_SIZE, TinyModel, save_tiny_model

CONTEXT_TOKENS = 4096
NUM_TOKENS = 8
NUM_BLOCKS = CONTEXT_TOKENS // BLOCK_TOKENS


@pytest.fixture(scope="module")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    folder = tmp_path_factory.mktemp("long")
    return save_tiny_model(folder, max_context_tokens=CONTEXT_TOKENS)


def a_prompt(num_tokens: int, seed: int) -> tuple[int, ...]:
    chance = random.Random(seed)
    return tuple(chance.randrange(VOCABULARY_SIZE) for _ in range(num_tokens))


@pytest.mark.parametrize("chunk_tokens", [64, 256])
@pytest.mark.parametrize("partition", [(5,), (1, 3, 1)], ids=len)
def test_a_prompt_that_leaves_room_for_its_output_only_equals_the_reference(
    long_model: TinyModel, partition: tuple[int, ...], chunk_tokens: int
) -> None:
    engine = an_inline_engine(
        long_model.folder, partition, chunk_tokens=chunk_tokens, num_blocks=NUM_BLOCKS,
        max_context_tokens=CONTEXT_TOKENS,
    )  # fmt: skip
    prompt = a_prompt(CONTEXT_TOKENS - NUM_TOKENS, seed=1)
    engine.submit("long", prompt, NUM_TOKENS)
    assert engine.run() == {"long": long_model.greedy(prompt, NUM_TOKENS)}


def test_long_ones_that_take_turns_through_host_memory_equal_the_reference(
    long_model: TinyModel,
) -> None:
    engine = an_inline_engine(
        long_model.folder, (2, 3), chunk_tokens=256, num_blocks=NUM_BLOCKS,
        max_context_tokens=CONTEXT_TOKENS, num_host_blocks=NUM_BLOCKS, preemption=AlwaysSwap(),
    )  # fmt: skip
    prompts = {f"r{index}": a_prompt(2020, seed=index) for index in range(2)}
    for name, prompt in prompts.items():
        engine.submit(name, prompt, 40)
    expected = {name: long_model.greedy(prompt, 40) for name, prompt in prompts.items()}
    assert engine.run() == expected
    assert engine.core.scheduler.tally.swaps > 0


def test_a_prompt_that_fills_the_context_leaves_no_room_and_is_refused(
    long_model: TinyModel,
) -> None:
    engine = an_inline_engine(
        long_model.folder, (5,), num_blocks=NUM_BLOCKS, max_context_tokens=CONTEXT_TOKENS
    )
    request = GenerationRequest("full", a_prompt(CONTEXT_TOKENS, seed=3), 1)
    rejected = engine.core.submit(request, 0.0)
    assert rejected == Rejected("full", RejectReason.PROMPT_TOO_LONG, CONTEXT_TOKENS - 1)
