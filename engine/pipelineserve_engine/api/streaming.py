"""Server-sent events: one JSON object each, `[DONE]` at the end, an error event where it breaks."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pipelineserve_engine.api.disconnect import until_disconnect
from pipelineserve_engine.api.errors import ClientGoneError, as_api_error

DONE = b"data: [DONE]\n\n"
# Proxies that buffer would turn a stream into one late answer.
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}

Payload = dict[str, Any]


class EventStreamResponse(StreamingResponse):
    """Sends the payloads as events; the generator is closed as soon as the client goes away."""

    def __init__(self, first: Payload, rest: AsyncGenerator[Payload, None]) -> None:
        self._rest = rest
        self._frames = _frames(first, rest)
        super().__init__(self._frames, media_type="text/event-stream", headers=HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and every event."""
        del scope
        # Both: frames that were never begun close nothing.
        async with aclosing(self._rest), aclosing(self._frames):
            # Nobody is left to tell.
            with suppress(ClientGoneError):
                await until_disconnect(receive, self.stream_response(send))


async def start_stream(payloads: AsyncGenerator[Payload, None]) -> EventStreamResponse:
    """Wait for the first payload, so that whatever fails before it becomes an HTTP status."""
    first = await anext(payloads)
    return EventStreamResponse(first, payloads)


def event(payload: Payload) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(payload, separators=(',', ':'))}\n\n".encode()


async def _frames(
    first: Payload, rest: AsyncGenerator[Payload, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield event(first)
        try:
            async for payload in rest:
                yield event(payload)
        except Exception as fault:  # noqa: BLE001 - as_api_error logs what nobody expected
            yield event(as_api_error(fault).body())
            return
    yield DONE
