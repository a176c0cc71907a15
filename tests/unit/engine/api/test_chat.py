"""Chat completions, through the official client."""

import json

import pytest
from openai.types.chat import ChatCompletionMessageParam

from api_server import MODEL, an_api_context, serving
from fake_engine import FakeEngine, events_of
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.generation import SamplingParameters, TokenEvent

pytestmark = pytest.mark.anyio

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]
PATH = "/v1/chat/completions"


async def test_answers_with_text_reason_and_usage() -> None:
    engine = FakeEngine(events_of("Hello", FinishReason.STOP, cached_prompt_tokens=3))
    async with serving(an_api_context(engine)) as api:
        answer = await api.client.chat.completions.create(model=MODEL, messages=HI)
    assert answer.id == "chatcmpl-id0"
    assert answer.object == "chat.completion"
    assert answer.created == 1000
    assert answer.model == MODEL
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == "Hello"
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len("user:Hi;")
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == 13
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 3


async def test_streams_the_role_then_text_then_reason_and_usage_last() -> None:
    engine = FakeEngine(events_of("Hey", FinishReason.LENGTH))
    async with serving(an_api_context(engine)) as api:
        stream = await api.client.chat.completions.create(
            model=MODEL, messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert deltas[0].role == "assistant"
    assert [delta.content for delta in deltas] == ["", "H", "e", "y", None]
    reasons = [chunk.choices[0].finish_reason for chunk in chunks[:-1]]
    assert reasons == [None, None, None, None, "length"]
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * 5
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3
    assert {chunk.id for chunk in chunks} == {"chatcmpl-id0"}


async def test_a_stream_without_include_usage_names_no_usage_and_ends_with_done() -> None:
    async with serving(an_api_context()) as api:
        answer = await api.post(PATH, {"model": MODEL, "messages": HI, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    frames = answer.body.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all("usage" not in json.loads(f.removeprefix("data: ")) for f in frames[:-2])


async def test_gives_every_parameter_to_the_engine() -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine)) as api:
        await api.client.chat.completions.create(
            model=MODEL,
            messages=HI,
            max_completion_tokens=7,
            temperature=0.5,
            top_p=0.25,
            seed=11,
            user="alice",
            presence_penalty=0.5,
            frequency_penalty=-0.5,
            logit_bias={"7": -100, "9": 5},
            logprobs=True,
            top_logprobs=4,
            safety_identifier="not asked, since there is a user",
            extra_body={
                "top_k": 40,
                "stop_token_ids": [5],
                "priority": 2,
                "min_p": 0.125,
                "repetition_penalty": 1.5,
            },
        )
    (request,) = engine.requests
    assert request.request_id == "chatcmpl-id0"
    assert request.prompt_token_ids == tuple(map(ord, "user:Hi;"))
    assert request.max_output_tokens == 7
    assert request.sampling == SamplingParameters(
        temperature=0.5,
        top_k=40,
        top_p=0.25,
        seed=11,
        min_p=0.125,
        repetition_penalty=1.5,
        frequency_penalty=-0.5,
        presence_penalty=0.5,
        logit_bias=((7, -100.0), (9, 5.0)),
    )
    assert request.num_top_logprobs == 4
    assert request.stop_token_ids == {0, 5}
    assert request.client_id == "alice"
    assert request.priority == 2


async def test_defaults_are_openais() -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine)) as api:
        await api.post(
            PATH,
            {
                "model": MODEL,
                "messages": HI,
                "n": 1,
                "presence_penalty": 0,
                "frequency_penalty": 0.0,
                "logprobs": False,
                "temperature": None,
                "response_format": {"type": "text"},
                "stop": None,
                "tools": [],
            },
        )
    (request,) = engine.requests
    assert request.max_output_tokens is None
    assert request.sampling == SamplingParameters(temperature=1.0, top_k=0, top_p=1.0)
    assert request.client_id == ""
    assert request.priority == 0


async def test_the_safety_identifier_is_the_client_when_there_is_no_user() -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine)) as api:
        await api.client.chat.completions.create(
            model=MODEL, messages=HI, safety_identifier="bob", prompt_cache_key="any"
        )
    assert engine.requests[0].client_id == "bob"


async def test_ignore_eos_leaves_only_the_clients_own_stop_tokens() -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine)) as api:
        fields = {"model": MODEL, "messages": HI, "ignore_eos": True}
        await api.post(PATH, fields)
        await api.post(PATH, {**fields, "stop_token_ids": [5]})
    assert [request.stop_token_ids for request in engine.requests] == [frozenset(), {5}]


async def test_a_temperature_next_to_zero_is_greedy() -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine)) as api:
        await api.post(PATH, {"model": MODEL, "messages": HI, "temperature": 1e-9})
    assert engine.requests[0].sampling.is_greedy


async def test_a_limit_beyond_the_context_is_cut_to_what_fits() -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine, max_context_tokens=10)) as api:
        await api.post(PATH, {"model": MODEL, "messages": HI, "max_tokens": 5000})
    assert engine.requests[0].max_output_tokens == 10 - len("user:Hi;")


async def test_joins_text_parts_and_reads_developer_as_system() -> None:
    engine = FakeEngine()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    async with serving(an_api_context(engine)) as api:
        await api.post(PATH, {"model": MODEL, "messages": messages})
    prompt = "".join(map(chr, engine.requests[0].prompt_token_ids))
    assert prompt == "system:be brief;user:a\nb;"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_text_and_request(stream: bool) -> None:
    engine = FakeEngine(events_of("one. two. three"))
    async with serving(an_api_context(engine)) as api:
        if stream:
            chunks = await api.client.chat.completions.create(
                model=MODEL, messages=HI, stop=[". t"], stream=True
            )
            choices = [chunk.choices[0] async for chunk in chunks]
            text = "".join(choice.delta.content or "" for choice in choices)
            reason = choices[-1].finish_reason
        else:
            answer = await api.client.chat.completions.create(
                model=MODEL, messages=HI, stop=[". t"]
            )
            text = answer.choices[0].message.content or ""
            reason = answer.choices[0].finish_reason
            assert answer.usage is not None
            assert answer.usage.completion_tokens == len("one. t")
    assert text == "one"
    assert reason == "stop"
    assert engine.finished == ["chatcmpl-id0"]
    assert engine.cancelled.empty()


async def test_the_beginning_of_a_stop_string_is_shown_when_the_text_ends_with_it() -> None:
    engine = FakeEngine(events_of("one. "))
    async with serving(an_api_context(engine)) as api:
        answer = await api.client.chat.completions.create(model=MODEL, messages=HI, stop=". t")
    assert answer.choices[0].message.content == "one. "
    assert answer.choices[0].finish_reason == "length"
    assert engine.finished == []


async def test_a_stop_token_ends_with_reason_stop_and_is_not_counted() -> None:
    engine = FakeEngine([*events_of("Hey")[:2], TokenEvent(None, FinishReason.STOP)])
    async with serving(an_api_context(engine)) as api:
        answer = await api.client.chat.completions.create(model=MODEL, messages=HI)
    assert answer.choices[0].message.content == "He"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2
