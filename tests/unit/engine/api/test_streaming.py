"""What a stream's response owns, however early it is left."""

from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from pipelineserve_engine.api.streaming import Payload, start_stream

pytestmark = pytest.mark.anyio


async def test_a_client_gone_before_the_first_byte_still_closes_the_payloads() -> None:
    closed = []

    async def payloads() -> AsyncGenerator[Payload, None]:
        try:
            yield {"n": 1}
            yield {"n": 2}
        finally:
            closed.append(True)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise OSError(f"nobody reads {message['type']}")

    response = await start_stream(payloads())
    with pytest.raises(OSError, match="nobody reads"):
        await response({"type": "http"}, receive, send)
    assert closed == [True]


async def test_what_fails_before_the_first_payload_is_raised() -> None:
    async def payloads() -> AsyncGenerator[Payload, None]:
        raise ValueError("refused")
        yield {}

    with pytest.raises(ValueError, match="refused"):
        await start_stream(payloads())
