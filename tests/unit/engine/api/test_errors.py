"""Every error has OpenAI's shape, names its field and says what to do."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from api_server import MODEL, RunningApi, an_api_context, request_bytes, serving
from character_codec import CharacterCodec
from fake_engine import FakeEngine, events_of
from pipelineserve.errors import EngineUnavailableError, Fault, InvalidInputError, QueueFullError
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.api.app import build_app
from pipelineserve_engine.generation import GenerationRequest, TokenEvent

pytestmark = pytest.mark.anyio

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]
CHAT = "/v1/chat/completions"
QUEUE_FULL = QueueFullError("8 requests wait and 8 may; try again later", retry_after_s=2.5)


async def _refusal(path: str, fields: Any) -> tuple[int, dict[str, Any]]:
    engine = FakeEngine()
    # In-process: dozens of cases, and no server is needed to read a body.
    transport = httpx.ASGITransport(build_app(an_api_context(engine)))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.post(path, content=json.dumps(fields))
    assert engine.requests == []
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return answer.status_code, body["error"]


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("max_tokens", "5", "max_tokens"),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", 1.5, "max_tokens"),
        ("max_tokens", True, "max_tokens"),
        ("temperature", 2.1, "temperature"),
        ("temperature", float("nan"), "temperature"),
        ("temperature", float("inf"), "temperature"),
        ("top_p", 0, "top_p"),
        ("top_k", -1, "top_k"),
        ("seed", 2**63, "seed"),
        ("stop", ["a", "b", "c", "d", "e"], "stop"),
        ("stop", "", "stop"),
        ("stop", "x" * 257, "stop"),
        ("stop", [1], "stop"),
        ("stop_token_ids", [-1], "stop_token_ids[0]"),
        ("stop_token_ids", [1] * 129, "stop_token_ids"),
        ("stream", "yes", "stream"),
        ("stream_options", {"include_usage": True}, "stream_options"),
        ("user", "u" * 257, "user"),
        ("priority", 101, "priority"),
        ("n", 0, "n"),
        ("n", 17, "n"),
        ("n", True, "n"),
        ("logprobs", 3, "logprobs"),
        ("top_logprobs", 3, "top_logprobs"),
        ("logit_bias", {"1114112": 1}, "logit_bias"),
        ("logit_bias", {"5": 100.5}, "logit_bias"),
        ("logit_bias", {"5": "1"}, "logit_bias"),
        ("logit_bias", {"5": True}, "logit_bias"),
        ("logit_bias", {"5": float("nan")}, "logit_bias"),
        ("logit_bias", {"five": 1}, "logit_bias"),
        ("logit_bias", {"-5": 1}, "logit_bias"),
        ("logit_bias", {"5": 1, "05": 2}, "logit_bias"),
        ("logit_bias", {str(i): 1 for i in range(301)}, "logit_bias"),
        ("logit_bias", [5], "logit_bias"),
        ("presence_penalty", 2.1, "presence_penalty"),
        ("frequency_penalty", -2.1, "frequency_penalty"),
        ("frequency_penalty", float("nan"), "frequency_penalty"),
        ("repetition_penalty", 0, "repetition_penalty"),
        ("min_p", 1.1, "min_p"),
        ("ignore_eos", 1, "ignore_eos"),
        ("safety_identifier", "u" * 257, "safety_identifier"),
        ("tools", [{"type": "function"}], "tools"),
        ("response_format", {"type": "json_object"}, "response_format"),
        ("max_completion_tokens", 2**31, "max_completion_tokens"),
        ("best_friend", 1, "best_friend"),
        ("messages", [], "messages"),
        ("messages", "Hi", "messages"),
        ("messages", [{"role": "tool", "content": "4"}], "messages[0].role"),
        ("messages", [{"role": "user"}], "messages[0].content"),
        ("messages", [{"role": "user", "content": None}], "messages[0].content"),
        ("messages", [{"role": "user", "content": "a", "tone": 1}], "messages[0].tone"),
        (
            "messages",
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content",
        ),
    ],
)
async def test_names_the_field_of_a_chat_request_that_is_wrong(
    field: str, value: Any, param: str
) -> None:
    status, error = await _refusal(CHAT, {"model": MODEL, "messages": HI, field: value})
    assert status == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert param in error["message"]


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("prompt", [], "prompt"),
        ("prompt", "", "prompt"),
        ("prompt", [[]], "prompt"),
        ("prompt", ["a", 1], "prompt"),
        ("prompt", [1, True], "prompt"),
        ("prompt", None, "prompt"),
        ("prompt", ["a"] * 129, "prompt"),
        ("prompt", [-1], "prompt"),
        ("prompt", [0x110000], "prompt"),
        ("echo", True, "echo"),
        ("best_of", 2, "best_of"),
        ("logprobs", 6, "logprobs"),
        ("logprobs", True, "logprobs"),
        ("suffix", "end", "suffix"),
        ("messages", HI, "messages"),
    ],
)
async def test_names_the_field_of_a_completion_request_that_is_wrong(
    field: str, value: Any, param: str
) -> None:
    status, error = await _refusal("/v1/completions", {"model": MODEL, "prompt": "a", field: value})
    assert status == 400
    assert error["param"] == param


async def test_says_what_was_got_and_what_is_expected_of_every_fault() -> None:
    wrong = {"top_p": "high", "parallel_tool_calls": 2}
    _, error = await _refusal(CHAT, {"model": MODEL, "messages": HI, **wrong})
    assert error["message"] == (
        "'top_p': Input should be a valid number, got the string \"high\"; "
        "'parallel_tool_calls': Not supported by this server; "
        "leave it out or send true or false, got 2"
    )


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
async def test_json_modes_are_refused_by_name_with_advice(kind: str) -> None:
    wanted = {"response_format": {"type": kind}}
    _, error = await _refusal(CHAT, {"model": MODEL, "messages": HI, **wanted})
    message = error["message"]
    assert message.startswith('\'response_format\': Only {"type": "text"} is supported')
    assert "ask for JSON in the prompt, check the answer" in message


async def test_prompts_times_samples_are_bounded() -> None:
    fields = {"model": MODEL, "prompt": ["a"] * 9, "n": 15}
    status, error = await _refusal("/v1/completions", fields)
    assert (status, error["param"]) == (400, "prompt")
    assert "at most 128 prompts times 'n', got 135" in error["message"]


async def test_an_unknown_argument_is_unrecognized_and_a_missing_one_missing() -> None:
    _, error = await _refusal(CHAT, {"model": MODEL, "messages": HI, "mood": "good"})
    assert error["message"] == "Unrecognized request argument supplied: mood"
    _, error = await _refusal(CHAT, {"model": MODEL})
    assert error["message"] == "Missing required parameter: 'messages'"
    assert error["param"] == "messages"


async def test_two_different_output_limits_are_refused() -> None:
    limits = {"max_tokens": 5, "max_completion_tokens": 6}
    status, error = await _refusal(CHAT, {"model": MODEL, "messages": HI, **limits})
    assert status == 400
    assert error["param"] == "max_completion_tokens"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        b"[" * 100_000,
        b'{"model": 1' + b"0" * 5000 + b"}",
        b'{"model": "org/tiny", "messages": [{"role": "user", "content": "\\ud800"}]}',
    ],
)
async def test_a_body_that_is_no_json_object_is_a_400(body: bytes) -> None:
    async with serving(an_api_context()) as api:
        answer = await api.send("POST", CHAT, body)
    assert answer.status == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_unknown_routes_and_methods_have_the_same_shape() -> None:
    async with serving(an_api_context()) as api:
        lost = await api.send("GET", "/v2/nothing")
        wrong = await api.send("GET", CHAT)
    assert lost.status == 404
    assert "GET /v2/nothing" in lost.json()["error"]["message"]
    assert wrong.status == 405
    assert wrong.headers["allow"] == "POST"
    assert wrong.json()["error"]["type"] == "invalid_request_error"


async def test_another_model_is_not_found() -> None:
    async with serving(an_api_context()) as api:
        with pytest.raises(openai.NotFoundError) as refused:
            await api.client.chat.completions.create(model="gpt", messages=HI)
    assert refused.value.code == "model_not_found"
    assert refused.value.param == "model"
    assert MODEL in refused.value.message


async def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers() -> None:
    async with serving(an_api_context(max_context_tokens=8)) as api:
        with pytest.raises(openai.BadRequestError) as refused:
            await api.client.chat.completions.create(model=MODEL, messages=HI)
        with pytest.raises(openai.BadRequestError) as refused_prompt:
            await api.client.completions.create(model=MODEL, prompt=[1] * 9)
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.param == "messages"
    assert "8 tokens; this model's context is 8 tokens" in refused.value.message
    assert refused_prompt.value.param == "prompt"


async def test_a_chat_template_that_refuses_is_a_bad_request() -> None:
    status, error = await _refusal(
        CHAT, {"model": MODEL, "messages": [{"role": "assistant", "content": "Hi"}]}
    )
    assert status == 400
    assert error["param"] == "messages"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_queue_is_a_rate_limit_with_retry_after(stream: bool) -> None:
    async with serving(an_api_context(FakeEngine(refusal=QUEUE_FULL))) as api:
        with pytest.raises(openai.RateLimitError) as refused:
            await api.client.chat.completions.create(model=MODEL, messages=HI, stream=stream)
    assert refused.value.response.headers["retry-after"] == "3"
    assert refused.value.code == "queue_full"
    assert refused.value.type == "rate_limit_exceeded"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stopping_engine_is_unavailable_with_retry_after(stream: bool) -> None:
    engine = FakeEngine(refusal=EngineUnavailableError("the server is draining; go elsewhere"))
    async with serving(an_api_context(engine)) as api:
        with pytest.raises(openai.InternalServerError) as refused:
            await api.client.chat.completions.create(model=MODEL, messages=HI, stream=stream)
    assert refused.value.status_code == 503
    assert int(refused.value.response.headers["retry-after"]) >= 1
    assert refused.value.code == "engine_unavailable"


async def test_what_the_engine_finds_invalid_is_a_bad_request() -> None:
    fault = Fault("prompt", "has 9000 tokens, the KV pool holds 4096; send a shorter one")
    async with serving(
        an_api_context(FakeEngine(refusal=InvalidInputError("the request", [fault])))
    ) as api:
        with pytest.raises(openai.BadRequestError) as refused:
            await api.client.completions.create(model=MODEL, prompt="a")
    assert refused.value.param == "prompt"
    assert "9000" in refused.value.message


@pytest.mark.parametrize("reason", [FinishReason.ERROR, FinishReason.CANCELLED])
async def test_a_request_that_the_engine_gives_up_is_unavailable(reason: FinishReason) -> None:
    engine = FakeEngine([*events_of("Hey")[:2], TokenEvent(None, reason)])
    async with serving(an_api_context(engine)) as api:
        answer = await api.post(CHAT, {"model": MODEL, "messages": HI})
    assert answer.status == 503
    assert engine.cancelled.empty()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_fails_alone_says_why(stream: bool) -> None:
    events = [*events_of("Hey")[:2], TokenEvent(None, FinishReason.ERROR, detail="bad logits")]
    async with serving(an_api_context(FakeEngine(events))) as api:
        answer = await api.post(CHAT, {"model": MODEL, "messages": HI, "stream": stream})
    last = answer.body.decode().strip().split("\n\n")[-1].removeprefix("data: ")
    error = json.loads(last)["error"]
    assert error["code"] == "engine_unavailable"
    assert error["message"] == (
        "the engine gave the request up after 2 tokens (bad logits); send it again"
    )


class _Broken(FakeEngine):
    """Fails in a way that nobody foresaw, with the prompt in its message."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Yield one token, then fail."""
        prompt = "".join(map(chr, request.prompt_token_ids))
        if self.events:
            yield self.events[0]
        raise KeyError(prompt)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_unforeseen_failure_is_a_500_whose_log_has_no_prompt(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(an_api_context(_Broken(events=[]))) as api:
        answer = await api.post(CHAT, {"model": MODEL, "messages": HI, "stream": stream})
    assert answer.status == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "KeyError" in caplog.text
    assert "user:Hi" not in caplog.text + answer.body.decode()


async def _last_frames(api: RunningApi) -> list[str]:
    answer = await api.post(CHAT, {"model": MODEL, "messages": HI, "stream": True})
    assert answer.status == 200
    return answer.body.decode().strip().split("\n\n")


async def test_a_stream_that_fails_midway_ends_with_an_error_event() -> None:
    failure = EngineUnavailableError("a stage died and could not be restarted; send it again")
    engine = FakeEngine(events_of("Hey")[:2], failure=failure)
    async with serving(an_api_context(engine)) as api:
        frames = await _last_frames(api)
        with pytest.raises(openai.APIError, match="a stage died"):
            async for _ in await api.client.chat.completions.create(
                model=MODEL, messages=HI, stream=True
            ):
                pass
    error = json.loads(frames[-1].removeprefix("data: "))["error"]
    assert error["code"] == "engine_unavailable"
    assert "data: [DONE]" not in frames


async def test_an_unforeseen_failure_midway_ends_the_stream_with_an_error_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(an_api_context(_Broken())) as api:
        frames = await _last_frames(api)
    assert json.loads(frames[-1].removeprefix("data: "))["error"]["code"] == "internal_error"
    assert "user:Hi" not in caplog.text + "".join(frames)


async def test_an_engine_that_ends_without_a_reason_is_an_error() -> None:
    async with serving(an_api_context(FakeEngine(events_of("Hey")[:2]))) as api:
        answer = await api.post(CHAT, {"model": MODEL, "messages": HI})
    assert answer.status == 503


OVERSIZED = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x" * 5000}]})


async def test_a_body_announced_beyond_the_bound_is_a_413() -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine, max_body_bytes=4096)) as api:
        answer = await api.send("POST", CHAT, OVERSIZED.encode())
    assert answer.status == 413
    assert answer.json()["error"]["code"] == "body_too_large"
    assert "4096" in answer.json()["error"]["message"]
    assert engine.requests == []


async def test_a_body_that_grows_beyond_the_bound_is_a_413() -> None:
    engine = FakeEngine()
    chunked = f"{len(OVERSIZED):x}\r\n{OVERSIZED}\r\n0\r\n\r\n".encode()
    head = request_bytes("POST", CHAT, headers={"transfer-encoding": "chunked"})
    async with serving(an_api_context(engine, max_body_bytes=4096)) as api:
        reader, writer = await api.connect()
        writer.write(head.replace(b"content-length: 0\r\n", b"") + chunked)
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"body_too_large"' in answer
    assert engine.requests == []


async def test_a_body_at_the_bound_is_accepted() -> None:
    body = json.dumps({"model": MODEL, "messages": HI}).encode()
    async with serving(an_api_context(max_body_bytes=len(body))) as api:
        answer = await api.send("POST", CHAT, body)
    assert answer.status == 200


class BrokenCodec(CharacterCodec):
    """Cannot decode the letter l."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Fail on it."""
        if ord("l") in token_ids:
            raise RuntimeError("a mistake")
        return super().decode(token_ids)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_cannot_be_made_counts_as_an_error_of_its_request(
    stream: bool,
) -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine, codec=BrokenCodec())) as api:
        answer = await api.post(CHAT, {"model": MODEL, "messages": HI, "stream": stream})
    assert b"internal_error" in answer.body
    assert engine.failed == ["chatcmpl-id0"]
