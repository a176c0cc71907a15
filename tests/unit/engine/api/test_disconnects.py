"""A client that goes away cancels its request, once; one that stays never does."""

import asyncio
import json
import threading
from typing import Any

import pytest

from api_server import MODEL, RunningApi, an_api_context, request_bytes, serving
from character_codec import CharacterCodec
from fake_engine import FakeEngine, events_of

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
CHAT_BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
PROMPTS_BODY: dict[str, Any] = {"model": MODEL, "prompt": ["a", "b", "c"]}


async def _begin(
    api: RunningApi, path: str, fields: dict[str, Any]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await api.connect()
    writer.write(request_bytes("POST", path, json.dumps(fields).encode()))
    await writer.drain()
    return reader, writer


async def _leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_before_the_first_token_cancels_once(stream: bool) -> None:
    engine = FakeEngine(pauses={0: asyncio.Event()})
    async with serving(an_api_context(engine)) as api:
        _, writer = await _begin(api, CHAT, {**CHAT_BODY, "stream": stream})
        await engine.submitted.get()
        await _leave(writer)
        assert await engine.cancelled.get() == "chatcmpl-id0"
    assert engine.cancelled.empty()
    assert engine.finished == []


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_in_the_middle_cancels_once(stream: bool) -> None:
    reached_third = asyncio.Event()

    class Midway(FakeEngine):
        """Says when it waits before the third event."""

        async def _pause(self, index: int) -> None:
            if index == 2:
                reached_third.set()
            await super()._pause(index)

    engine = Midway(pauses={2: asyncio.Event()})
    async with serving(an_api_context(engine)) as api:
        reader, writer = await _begin(api, CHAT, {**CHAT_BODY, "stream": stream})
        await reached_third.wait()
        if stream:
            await reader.readuntil(b'"content":"e"')
        await _leave(writer)
        assert await engine.cancelled.get() == "chatcmpl-id0"
    assert engine.cancelled.empty()


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_cancels_the_requests_of_every_prompt(stream: bool) -> None:
    engine = FakeEngine(pauses={0: asyncio.Event()})
    async with serving(an_api_context(engine)) as api:
        _, writer = await _begin(api, "/v1/completions", {**PROMPTS_BODY, "stream": stream})
        submitted = {await engine.submitted.get() for _ in range(3)}
        await _leave(writer)
        assert {await engine.cancelled.get() for _ in range(3)} == submitted
    assert engine.cancelled.empty()


async def test_a_client_that_stops_reading_and_leaves_cancels() -> None:
    class Endless(FakeEngine):
        """Sends until it is cancelled."""

        async def _pause(self, index: int) -> None:
            del index
            await asyncio.sleep(0)

    engine = Endless(events=events_of("HH")[:1] * 5_000_000)
    async with serving(an_api_context(engine)) as api:
        reader, writer = await _begin(api, CHAT, {**CHAT_BODY, "stream": True})
        await reader.readuntil(b'"content":"H"')
        await _leave(writer)
        assert await engine.cancelled.get() == "chatcmpl-id0"
    assert engine.cancelled.empty()


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_stays_to_the_end_cancels_nothing(path: str, stream: bool) -> None:
    engine = FakeEngine()
    fields = CHAT_BODY if path == CHAT else PROMPTS_BODY
    async with serving(an_api_context(engine)) as api:
        answer = await api.post(path, {**fields, "stream": stream})
    assert answer.status == 200
    assert engine.cancelled.empty()
    assert engine.finished == []


async def test_leaving_before_the_body_is_sent_asks_nothing_of_the_engine() -> None:
    engine = FakeEngine()
    async with serving(an_api_context(engine)) as api:
        _, writer = await api.connect()
        writer.write(request_bytes("POST", CHAT, b"{", {"content-length": "100"}))
        await writer.drain()
        await _leave(writer)
        assert (await api.send("GET", "/health")).status == 200
    assert engine.requests == []


async def test_a_long_encode_leaves_the_event_loop_free() -> None:
    may_end = threading.Event()
    codec = CharacterCodec(before_encode=lambda: _wait_for(may_end))
    long_prompt = {"model": MODEL, "prompt": "x" * 100_000}
    async with serving(an_api_context(codec=codec)) as api:
        answer = asyncio.create_task(api.post("/v1/completions", long_prompt))
        # Answered while the encode waits; on the loop, neither would ever end.
        assert (await api.send("GET", "/health")).status == 200
        may_end.set()
        assert (await answer).status == 200


def _wait_for(may_end: threading.Event) -> None:
    if not may_end.wait(timeout=30):
        raise TimeoutError("the event loop was blocked by an encode")
