"""How a server ends: orderly, in a hurry, or because a process was killed; never in silence."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from api_server import RunningApi, request_bytes
from engine_server import NAME, EngineServer, Samples, all_have_ended, wait_until
from pipelineserve import metrics
from served_model import ServedModel

pytestmark = pytest.mark.anyio

LONG_TOKENS = 1900  # seconds of work
END = b"data: [DONE]"
GRACE_IS_OVER = "timeout graceful shutdown exceeded"


@asynccontextmanager
async def serving(model: ServedModel) -> AsyncIterator[tuple[EngineServer, RunningApi]]:
    """Two stages and a client; what they leave behind is the test's to check."""
    flags = ("--stages=2", "--static-chunk-tokens=64", "--drain-seconds=5")
    with EngineServer(model.folder, *flags, "--recovery-max-restarts=0") as server:
        await asyncio.to_thread(server.wait_serving)
        api = RunningApi(server.port)
        try:
            yield server, api
        finally:
            await api.close()


def ask(api: RunningApi, max_tokens: int, **fields: Any) -> Any:
    """A greedy chat, not awaited yet."""
    messages: Any = [{"role": "user", "content": "a long story"}]
    return api.client.chat.completions.create(
        model=NAME, messages=messages, max_tokens=max_tokens, temperature=0, **fields
    )


async def begin_stream(api: RunningApi, max_tokens: int) -> Any:
    """A stream that has begun to come."""
    stream = await ask(api, max_tokens, stream=True)
    await anext(aiter(stream))
    return stream


@asynccontextmanager
async def raw_stream(api: RunningApi) -> AsyncIterator[asyncio.StreamReader]:
    """Bytes of a long stream that has begun to come."""
    messages = [{"role": "user", "content": "a long story"}]
    fields = {"model": NAME, "messages": messages, "max_tokens": LONG_TOKENS, "stream": True}
    reader, writer = await api.connect()
    writer.write(request_bytes("POST", "/v1/chat/completions", json.dumps(fields).encode()))
    await reader.readuntil(b"\n\n")
    yield reader
    writer.close()


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection ends, in whatever way."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            data += piece
    return data


async def read_rest(stream: Any) -> tuple[str, str | None]:
    """Text of what follows, and how the stream says that it ended."""
    text, reason = "", None
    async for piece in stream:
        for choice in piece.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    return text, reason


async def assert_ended(server: EngineServer, code: int) -> None:
    """The server ended so, and neither a process nor a file of it is left."""
    assert await asyncio.to_thread(server.wait) == code
    assert await asyncio.to_thread(all_have_ended, server.stage_pids)
    assert server.live_pids() == ()
    # Of a server that was killed the nursery takes them away, a moment later.
    await asyncio.to_thread(wait_until, server.leftovers, lambda left: not left)


def is_running(num_requests: int) -> Any:
    def check(samples: Samples) -> bool:
        return samples.value(metrics.REQUESTS_RUNNING) == num_requests

    return check


@pytest.mark.parametrize("victim", [0, 1])
async def test_a_killed_stage_ends_every_request_visibly_and_the_server_with_1(
    served_model: ServedModel, victim: int
) -> None:
    async with serving(served_model) as (server, api):
        whole = asyncio.create_task(ask(api, LONG_TOKENS))
        streams = [await begin_stream(api, LONG_TOKENS) for _ in range(2)]
        await asyncio.to_thread(server.wait_metrics, is_running(3))
        os.kill(server.stage_pids[victim], signal.SIGKILL)
        cause = f"stage {victim} ended with signal 9 (SIGKILL"
        for stream in streams:
            with pytest.raises(openai.APIError) as broken:
                await read_rest(stream)
            assert broken.value.message.startswith(cause)
            assert broken.value.code == "engine_unavailable"
        with pytest.raises(openai.InternalServerError) as refused:
            await whole
        assert refused.value.status_code == 503
        body: Any = refused.value.body
        assert body["message"].startswith(cause)
        assert (body["type"], body["code"]) == ("server_error", "engine_unavailable")
        assert "retry-after" in refused.value.response.headers
        await assert_ended(server, 1)
    assert f"error: {cause}" in server.log


async def test_stages_end_by_themselves_when_the_server_is_killed(
    served_model: ServedModel,
) -> None:
    async with serving(served_model) as (server, api):
        async with raw_stream(api) as reader:
            server.signal(signal.SIGKILL)
            assert END not in await read_to_end(reader)
        await assert_ended(server, -signal.SIGKILL)


async def test_sigint_lets_a_stream_end_in_full_and_exits_with_130(
    served_model: ServedModel,
) -> None:
    expected = served_model.greedy(served_model.chat_prompt("a long story"), 150)
    async with serving(served_model) as (server, api):
        stream = await begin_stream(api, 150)
        server.signal(signal.SIGINT)
        text, reason = await read_rest(stream)
        await assert_ended(server, 130)
    assert (text, reason) == (expected.text, expected.finish_reason)
    assert GRACE_IS_OVER not in server.log
    assert "Traceback" not in server.log


@pytest.mark.parametrize("is_hurried", [False, True], ids=["one signal", "two signals"])
async def test_a_stream_that_does_not_end_is_cut_after_the_grace_time_or_the_second_signal(
    served_model: ServedModel, is_hurried: bool
) -> None:
    """A stage stands still, so that neither the stream nor the stage itself ends in order."""
    async with serving(served_model) as (server, api):
        async with raw_stream(api) as reader:
            os.kill(server.stage_pids[1], signal.SIGSTOP)
            server.signal(signal.SIGTERM)
            if is_hurried:
                await until_closed(server.port)
                server.signal(signal.SIGTERM)
            assert END not in await read_to_end(reader)
        await assert_ended(server, 0)
    assert (GRACE_IS_OVER in server.log) is not is_hurried


async def until_closed(port: int) -> None:
    """Return when the server accepts nothing new: it has taken notice of the signal."""
    await asyncio.to_thread(wait_until, lambda: is_listening(port), lambda yes: not yes)


def is_listening(port: int) -> bool:
    """Whether anybody accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionError:
        return False
    return True
