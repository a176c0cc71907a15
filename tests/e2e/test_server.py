"""A server with real stages: answers are the reference's, and every request is accounted for."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from api_server import RawAnswer, RunningApi, request_bytes
from engine_server import NAME, EngineServer, Samples, all_have_ended
from pipelineserve import metrics
from served_model import CONTEXT_TOKENS, ExpectedAnswer, ServedModel
from small_tokenizers import LINES

pytestmark = pytest.mark.anyio

CHUNK_TOKENS = 48
NUM_STAGES = 2
LONG_TOKENS = 1800  # seconds of work


@pytest.fixture(scope="module")
def server(served_model: ServedModel) -> Iterator[EngineServer]:
    """Two stages; afterwards it must end in order and leave nothing behind."""
    flags = (f"--stages={NUM_STAGES}", f"--static-chunk-tokens={CHUNK_TOKENS}")
    with EngineServer(served_model.folder, *flags) as running:
        yield running.wait_serving()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert all_have_ended(running.stage_pids)
        assert running.leftovers() == []
        assert "ERROR" not in running.log
        assert "Traceback" not in running.log


@asynccontextmanager
async def client_of(server: EngineServer) -> AsyncIterator[RunningApi]:
    api = RunningApi(server.port)
    try:
        yield api
    finally:
        await api.close()


def is_settled(samples: Samples) -> bool:
    """Nobody waits or runs, no KV is held, and every stage has reported every step."""
    live = (metrics.REQUESTS_WAITING, metrics.REQUESTS_RUNNING, metrics.KV_USED)
    steps = {samples.count(metrics.STEP_TIME, stage=str(i)) for i in range(NUM_STAGES)}
    return all(samples.value(metric) == 0 for metric in live) and len(steps) == 1


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    text: str
    finish_reason: str | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int

    def assert_is(self, expected: ExpectedAnswer) -> None:
        """Compare with the reference."""
        assert (self.text, self.output_tokens, self.finish_reason) == (
            expected.text,
            expected.output_tokens,
            expected.finish_reason,
        )


def answer_of(text: str, finish_reason: str | None, usage: Any) -> Answer:
    return Answer(
        text=text,
        finish_reason=finish_reason,
        prompt_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=usage.prompt_tokens_details.cached_tokens,
    )


async def chat(api: RunningApi, content: str, max_tokens: int, *, stream: bool) -> Answer:
    """Ask through the official client; a stream's pieces are put together."""
    messages: Any = [{"role": "user", "content": content}]
    if not stream:
        whole = await api.client.chat.completions.create(
            model=NAME, messages=messages, max_tokens=max_tokens, temperature=0
        )
        choice = whole.choices[0]
        return answer_of(choice.message.content or "", choice.finish_reason, whole.usage)
    pieces = await api.client.chat.completions.create(
        model=NAME, messages=messages, max_tokens=max_tokens, temperature=0,
        stream=True, stream_options={"include_usage": True},
    )  # fmt: skip
    text, reasons, usage = "", [], None
    async for piece in pieces:
        text += "".join(choice.delta.content or "" for choice in piece.choices)
        reasons += [c.finish_reason for c in piece.choices if c.finish_reason is not None]
        usage = piece.usage
    assert len(reasons) == 1
    return answer_of(text, reasons[0], usage)


async def complete(api: RunningApi, prompt: str, max_tokens: int, *, stream: bool) -> Answer:
    """Like `chat`, for a plain prompt."""
    if not stream:
        whole = await api.client.completions.create(
            model=NAME, prompt=prompt, max_tokens=max_tokens, temperature=0
        )
        choice = whole.choices[0]
        return answer_of(choice.text, choice.finish_reason, whole.usage)
    pieces = await api.client.completions.create(
        model=NAME, prompt=prompt, max_tokens=max_tokens, temperature=0,
        stream=True, stream_options={"include_usage": True},
    )  # fmt: skip
    text, reasons, usage = "", [], None
    async for piece in pieces:
        text += "".join(choice.text for choice in piece.choices)
        reasons += [c.finish_reason for c in piece.choices if c.finish_reason]
        usage = piece.usage
    assert len(reasons) == 1
    return answer_of(text, reasons[0], usage)


# A mixed load


def mixed_load(
    api: RunningApi, model: ServedModel
) -> list[tuple[Awaitable[Answer], ExpectedAnswer]]:
    """Twenty requests of all four kinds with their references; many begin with the same text."""
    load: list[tuple[Awaitable[Answer], ExpectedAnswer]] = []
    shared = "One and the same beginning for several of them. " * 2
    for index in range(10):
        content = f"{shared if index % 2 else ''}{LINES[index % 3] * (1 + index % 4)} {index}"
        num_tokens = (1, 2, 7, 30, 16)[index % 5]
        is_stream = index % 4 < 2
        load.append(
            (
                chat(api, content, num_tokens, stream=is_stream),
                model.greedy(model.chat_prompt(content), num_tokens),
            )
        )
        prompt_ids = model.codec.encode_prompt(content)
        load.append(
            (
                complete(api, content, num_tokens + 3, stream=not is_stream),
                model.greedy(prompt_ids, num_tokens + 3, continues_text=True),
            )
        )
    return load


async def test_a_mixed_load_equals_the_reference_and_is_counted_exactly(
    server: EngineServer, served_model: ServedModel
) -> None:
    before = server.wait_metrics(is_settled)
    async with client_of(server) as api:
        # Its prefix is in the cache when the others come.
        content = "One and the same beginning for several of them. " * 2
        answers = [await chat(api, content, 2, stream=False)]
        load = mixed_load(api, served_model)
        answers += await asyncio.gather(*(asked for asked, _ in load))
    for answer, (_, expected) in zip(answers[1:], load, strict=True):
        answer.assert_is(expected)
    after = server.wait_metrics(is_settled)

    def rise(metric: metrics.Metric, **labels: str) -> float:
        return after.value(metric, **labels) - before.value(metric, **labels)

    def count(metric: metrics.Metric) -> float:
        return after.count(metric) - before.count(metric)

    num_sent = len(answers)
    outputs = [answer.output_tokens for answer in answers]
    assert rise(metrics.REQUESTS, outcome="stop") == sum(
        answer.finish_reason == "stop" for answer in answers
    )
    assert rise(metrics.REQUESTS, outcome="length") == sum(
        answer.finish_reason == "length" for answer in answers
    )
    for outcome in ("cancelled", "rejected", "error"):
        assert rise(metrics.REQUESTS, outcome=outcome) == 0
    assert count(metrics.TTFT) == count(metrics.E2E) == count(metrics.QUEUE_WAIT) == num_sent
    assert count(metrics.TPOT) == sum(tokens >= 2 for tokens in outputs)
    assert count(metrics.TOKEN_GAP) == sum(max(0, tokens - 1) for tokens in outputs)
    assert rise(metrics.OUTPUT_TOKENS) == sum(outputs)
    assert rise(metrics.PROMPT_TOKENS) == sum(answer.prompt_tokens for answer in answers)
    assert rise(metrics.CACHED_TOKENS) == sum(answer.cached_tokens for answer in answers) > 0
    assert rise(metrics.PREEMPTIONS) == 0


async def test_each_stage_reports_every_step_and_a_bubble_between_0_and_1(
    server: EngineServer,
) -> None:
    async with client_of(server) as api:
        await asyncio.gather(*(chat(api, f"{i} {LINES[0]}", 20, stream=False) for i in range(4)))
    samples = server.wait_metrics(is_settled)
    work_s = samples.value(metrics.WORK)
    for stage in ("0", "1"):
        busy_s = samples.value(metrics.STAGE_BUSY, stage=stage)
        assert 0.0 < busy_s < work_s
        assert samples.total(metrics.STEP_TIME, stage=stage) == pytest.approx(busy_s)
        assert samples.count(metrics.STEP_TIME, stage=stage) == samples.count(
            metrics.MICRO_BATCH_TOKENS
        )
        assert 0.0 <= samples.value(metrics.BUBBLE, stage=stage) <= 1.0
    assert samples.value(metrics.CHUNK_TOKENS) == CHUNK_TOKENS


async def test_a_seed_gives_the_same_text_whatever_runs_beside_it(server: EngineServer) -> None:
    async with client_of(server) as api:

        async def sampled() -> str:
            answer = await api.client.completions.create(
                model=NAME, prompt="seeded", max_tokens=24, temperature=1.0, top_p=0.9, seed=11
            )
            return answer.choices[0].text

        alone = await sampled()
        others = [complete(api, f"{i} {LINES[1]}", 12, stream=True) for i in range(4)]
        beside, *_ = await asyncio.gather(sampled(), *others)
    assert alone == beside


# Clients that go away


def long_chat(content: str, *, stream: bool, max_tokens: int = LONG_TOKENS) -> bytes:
    """A raw request for seconds of work; the sampler never stops it early."""
    return request_bytes(
        "POST",
        "/v1/chat/completions",
        json.dumps(
            {
                "model": NAME,
                "messages": [{"role": "user", "content": content}],
                "max_tokens": max_tokens,
                "temperature": 0,
                "stream": stream,
            }
        ).encode(),
    )


async def leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


async def reach(server: EngineServer, metric: metrics.Metric, value: float, **labels: str) -> None:
    """Wait for a metric without blocking the clients of this event loop."""
    await asyncio.to_thread(
        server.wait_metrics, lambda samples: samples.value(metric, **labels) == value
    )


async def test_leaving_a_stream_in_the_middle_frees_its_kv_and_disturbs_nobody(
    server: EngineServer, served_model: ServedModel
) -> None:
    before = server.wait_metrics(is_settled)
    async with client_of(server) as api:
        contents = [f"neighbour {index} {LINES[2]}" for index in range(3)]
        neighbours = [
            asyncio.create_task(chat(api, content, 40, stream=True)) for content in contents
        ]
        reader, writer = await api.connect()
        writer.write(long_chat("stay a while", stream=True))
        for _ in range(5):
            await reader.readuntil(b"\n\n")
        await leave(writer)
        answers = await asyncio.gather(*neighbours)
    for content, answer in zip(contents, answers, strict=True):
        answer.assert_is(served_model.greedy(served_model.chat_prompt(content), 40))
    after = await asyncio.to_thread(server.wait_metrics, is_settled)
    assert gone(before, after) == 1
    sampled = after.value(metrics.OUTPUT_TOKENS) - before.value(metrics.OUTPUT_TOKENS)
    assert sampled < LONG_TOKENS


def gone(before: Samples, after: Samples) -> float:
    """How many requests were cancelled in between."""
    return after.value(metrics.REQUESTS, outcome="cancelled") - before.value(
        metrics.REQUESTS, outcome="cancelled"
    )


async def test_leaving_a_whole_answer_in_the_middle_is_noticed(server: EngineServer) -> None:
    before = server.wait_metrics(is_settled)
    async with client_of(server) as api:
        _, writer = await api.connect()
        writer.write(long_chat("all at once", stream=False))
        some = before.value(metrics.OUTPUT_TOKENS) + 5
        await asyncio.to_thread(
            server.wait_metrics, lambda samples: samples.value(metrics.OUTPUT_TOKENS) >= some
        )
        await leave(writer)
    after = await asyncio.to_thread(server.wait_metrics, is_settled)
    assert gone(before, after) == 1
    assert after.value(metrics.OUTPUT_TOKENS) < before.value(metrics.OUTPUT_TOKENS) + LONG_TOKENS


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_before_the_first_token_is_noticed_while_its_work_is_in_flight(
    server: EngineServer, stream: bool
) -> None:
    """The last stage stands still, so that no token can come back before the client has left."""
    before = server.wait_metrics(is_settled)
    os.kill(server.stage_pids[1], signal.SIGSTOP)
    try:
        async with client_of(server) as api:
            _, writer = await api.connect()
            writer.write(long_chat(f"{stream}: " + "unlike " * 200, stream=stream))
            await reach(server, metrics.REQUESTS_RUNNING, 1)
            await leave(writer)
            await reach(server, metrics.REQUESTS_RUNNING, 0)
        left = server.metrics()
        assert gone(before, left) == 1
        assert left.value(metrics.KV_USED) > 0  # its blocks are still written to
    finally:
        os.kill(server.stage_pids[1], signal.SIGCONT)
    after = server.wait_metrics(is_settled)
    assert gone(before, after) == 1
    assert after.count(metrics.TTFT) == before.count(metrics.TTFT)
    issued = after.total(metrics.MICRO_BATCH_TOKENS) - before.total(metrics.MICRO_BATCH_TOKENS)
    assert 0 < issued <= NUM_STAGES * CHUNK_TOKENS


# Errors in OpenAI's shape

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]


def assert_error(answer: RawAnswer, status: int, param: str | None, part: str) -> None:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (answer.status, error["param"]) == (status, param)
    assert part in error["message"]


@pytest.mark.parametrize(
    ("fields", "status", "param", "part"),
    [
        ({"model": "other"}, 404, "model", "'other' does not exist here"),
        ({"messages": []}, 400, "messages", "messages"),
        ({"temperature": 3}, 400, "temperature", "2"),
        ({"max_tokens": 0}, 400, "max_tokens", "1"),
        ({"temprature": 1}, 400, "temprature", "temprature"),
        (
            {"messages": [{"role": "user", "content": "x" * 3 * CONTEXT_TOKENS}]},
            400,
            "messages",
            f"this model's context is {CONTEXT_TOKENS} tokens",
        ),
    ],
    ids=["unknown model", "no messages", "out of bounds", "no output", "misspelt", "too long"],
)
async def test_a_bad_request_names_its_field(
    server: EngineServer, fields: dict[str, Any], status: int, param: str, part: str
) -> None:
    async with client_of(server) as api:
        answer = await api.post(CHAT, {"model": NAME, "messages": MESSAGES, **fields})
    assert_error(answer, status, param, part)


async def test_malformed_json_is_a_400_in_the_same_shape(server: EngineServer) -> None:
    async with client_of(server) as api:
        answer = await api.send("POST", CHAT, b'{"model": ')
    assert_error(answer, 400, None, "JSON")


async def test_a_token_outside_the_vocabulary_is_refused_and_the_server_serves_on(
    server: EngineServer,
) -> None:
    async with client_of(server) as api:
        answer = await api.post("/v1/completions", {"model": NAME, "prompt": [1, 300]})
        assert_error(answer, 400, "prompt", "0 to 299")
        assert (await chat(api, "Hi", 2, stream=False)).output_tokens == 2


async def test_health_and_readiness_say_yes(server: EngineServer) -> None:
    async with client_of(server) as api:
        assert (await api.send("GET", "/health")).json() == {"status": "live", "detail": "serving"}
        assert (await api.send("GET", "/ready")).json() == {"status": "ready", "detail": "serving"}


# A full queue


@pytest.fixture(scope="module")
def narrow_server(served_model: ServedModel) -> Iterator[EngineServer]:
    """One request runs, one waits."""
    flags = ("--max-running-requests=1", "--max-waiting-requests=1")
    with EngineServer(served_model.folder, *flags) as running:
        yield running.wait_serving()


@asynccontextmanager
async def occupied(server: EngineServer, api: RunningApi) -> AsyncIterator[None]:
    """Somebody holds the only place to run until the block ends."""
    reader, writer = await api.connect()
    writer.write(long_chat("occupant", stream=True))
    await reader.readuntil(b"\n\n")
    await reach(server, metrics.REQUESTS_RUNNING, 1)
    try:
        yield
    finally:
        await leave(writer)
        await reach(server, metrics.REQUESTS_RUNNING, 0)


async def test_a_full_queue_is_a_429_with_retry_after_and_then_serves_on(
    narrow_server: EngineServer, served_model: ServedModel
) -> None:
    before = narrow_server.metrics()
    async with client_of(narrow_server) as api:
        async with occupied(narrow_server, api):
            queued = asyncio.create_task(chat(api, "queued", 5, stream=False))
            await reach(narrow_server, metrics.REQUESTS_WAITING, 1)
            refused = await api.post(CHAT, {"model": NAME, "messages": MESSAGES})
            with pytest.raises(openai.RateLimitError) as limited:
                await chat(api, "refused", 5, stream=True)
        (await queued).assert_is(served_model.greedy(served_model.chat_prompt("queued"), 5))
    assert_error(refused, 429, None, "the waiting queue is full (1 requests); try again later")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert limited.value.code == "queue_full"
    after = narrow_server.metrics()
    rejected = [s.value(metrics.REQUESTS, outcome="rejected") for s in (before, after)]
    assert rejected[1] - rejected[0] == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_the_queue_frees_the_place_and_never_starts(
    narrow_server: EngineServer, served_model: ServedModel, stream: bool
) -> None:
    before = narrow_server.metrics()
    async with client_of(narrow_server) as api:
        async with occupied(narrow_server, api):
            _, writer = await api.connect()
            writer.write(long_chat("gives up", stream=stream))
            await reach(narrow_server, metrics.REQUESTS_WAITING, 1)
            await leave(writer)
            await reach(narrow_server, metrics.REQUESTS_WAITING, 0)
            queued = asyncio.create_task(chat(api, "patient", 5, stream=False))
            await reach(narrow_server, metrics.REQUESTS_WAITING, 1)
        (await queued).assert_is(served_model.greedy(served_model.chat_prompt("patient"), 5))
    after = narrow_server.metrics()
    assert gone(before, after) == 2  # the occupant and the one that gave up
    assert after.count(metrics.QUEUE_WAIT) - before.count(metrics.QUEUE_WAIT) == 2
