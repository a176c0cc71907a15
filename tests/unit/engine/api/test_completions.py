"""Completions of one prompt and of several."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from api_server import MODEL, an_api_context, serving
from fake_engine import FakeEngine, events_of
from pipelineserve.errors import QueueFullError
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.generation import GenerationRequest, TokenEvent

pytestmark = pytest.mark.anyio

PATH = "/v1/completions"
PROMPT_FORMS = [
    ("ab", ["ab"]),
    (["ab", "c"], ["ab", "c"]),
    ([97, 98], ["ab"]),
    ([[97, 98], [99]], ["ab", "c"]),
]


@pytest.mark.parametrize(("prompt", "expected"), PROMPT_FORMS)
@pytest.mark.parametrize("stream", [False, True])
async def test_takes_every_form_of_prompt(prompt: Any, expected: list[str], stream: bool) -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine)) as api:
        answer = await api.post(PATH, {"model": MODEL, "prompt": prompt, "stream": stream})
    assert answer.status == 200
    seen = ["".join(map(chr, request.prompt_token_ids)) for request in engine.requests]
    assert sorted(seen) == expected


async def test_answers_with_one_choice_per_prompt_and_the_summed_usage() -> None:
    engine = FakeEngine(events_of("xyz", FinishReason.STOP, cached_prompt_tokens=1))
    async with serving(an_api_context(engine)) as api:
        answer = await api.client.completions.create(model=MODEL, prompt=["ab", "c"])
    assert answer.id == "cmpl-id0"
    assert answer.object == "text_completion"
    assert [(c.index, c.text, c.finish_reason) for c in answer.choices] == [
        (0, "xyz", "stop"),
        (1, "xyz", "stop"),
    ]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3
    assert answer.usage.completion_tokens == 6
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 2
    assert [request.request_id for request in engine.requests] == ["cmpl-id0-0", "cmpl-id0-1"]


async def test_streams_several_prompts_with_their_index() -> None:
    engine = FakeEngine(events_of("xyz"))
    async with serving(an_api_context(engine)) as api:
        stream = await api.client.completions.create(
            model=MODEL,
            prompt=["ab", "c"],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    texts: dict[int, str] = defaultdict(str)
    reasons = {}
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        texts[choice.index] += choice.text
        reasons[choice.index] = choice.finish_reason
    assert texts == {0: "xyz", 1: "xyz"}
    assert reasons == {0: "length", 1: "length"}
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6


async def test_generates_sixteen_tokens_unless_told_otherwise() -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine)) as api:
        await api.post(PATH, {"model": MODEL, "prompt": "a"})
        await api.post(PATH, {"model": MODEL, "prompt": "a", "max_tokens": 3})
    assert [request.max_output_tokens for request in engine.requests] == [16, 3]


class _FullAfterOne(FakeEngine):
    """Takes one request and refuses the next."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Submit; the second time, refuse."""
        if self.requests:
            self.refusal = QueueFullError("8 requests wait and 8 may; try again later", 2.5)
        return super().generate(request)


@pytest.mark.parametrize("stream", [False, True])
async def test_one_refused_prompt_refuses_all_and_cancels_the_others(stream: bool) -> None:
    engine = _FullAfterOne(pauses={0: asyncio.Event()})
    async with serving(an_api_context(engine)) as api:
        answer = await api.post(PATH, {"model": MODEL, "prompt": ["a", "b"], "stream": stream})
        assert answer.status == 429
        assert await engine.cancelled.get() == "cmpl-id0-0"
    assert engine.cancelled.empty()
