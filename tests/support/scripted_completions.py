"""An HTTP server whose streams a test writes byte by byte, for clients that must survive them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

MODEL = "scripted"


class Ending(Enum):
    """What follows the parts of a reply."""

    WHOLE = "the stream ends in order"
    BREAK = "the connection is closed in the middle"
    HOLD = "nothing comes until the client leaves"


@dataclass(frozen=True)
class Reply:
    """Answer to one POST: the parts one after another, each in a packet of its own."""

    parts: tuple[bytes, ...] = ()
    status: int = 200
    headers: tuple[str, ...] = ()
    ending: Ending = Ending.WHOLE


@dataclass
class ScriptedServer:
    """Where it listens and what it got.

    Attributes:
        bodies: of the POSTs so far, in order.
        heads: of all requests so far.
        arrived: is set by every POST; a test may clear it.
    """

    port: int = 0
    bodies: list[Any] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    num_connections: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """Base of its API."""
        return f"http://127.0.0.1:{self.port}"


def text_event(text: str, finish: str | None = None) -> bytes:
    """A completion's chunk."""
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish}]})


def usage_event(prompt_tokens: int, output_tokens: int) -> bytes:
    """The last chunk's usage."""
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens}
    return event({"choices": [], "usage": usage})


def event(fields: object) -> bytes:
    """Any event."""
    return f"data: {json.dumps(fields)}\n\n".encode()


DONE = b"data: [DONE]\n\n"
WHOLE_ANSWER = (
    text_event("a"),
    text_event("b"),
    text_event("c", "length"),
    usage_event(7, 3),
    DONE,
)


@asynccontextmanager
async def scripted_server(
    reply_to: Callable[[int], Reply],
) -> AsyncGenerator[ScriptedServer, None]:
    """Serve on a free port; `reply_to` is given the POST's number, from 0."""
    server = ScriptedServer()
    handlers: set[asyncio.Task[None]] = set()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            handlers.add(task)
        server.num_connections += 1
        try:
            while await _answer(server, reply_to, reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has left, or the test is over
        finally:
            writer.close()

    listener = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


async def _answer(
    server: ScriptedServer,
    reply_to: Callable[[int], Reply],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    server.heads.append(head)
    if head.startswith("GET"):
        models = json.dumps({"data": [{"id": MODEL}]}).encode()
        status = 200 if head.startswith("GET /v1/models ") else 404
        writer.write(
            b"HTTP/1.1 %d -\r\ncontent-length: %d\r\n\r\n%s" % (status, len(models), models)
        )
        return True
    length = next(line for line in head.lower().split("\r\n") if line.startswith("content-length:"))
    server.bodies.append(json.loads(await reader.readexactly(int(length.split(":")[1]))))
    reply = reply_to(len(server.bodies) - 1)
    server.arrived.set()
    await _write(reply, writer)
    if reply.ending is Ending.HOLD:
        await reader.read()
    return reply.ending is Ending.WHOLE


async def _write(reply: Reply, writer: asyncio.StreamWriter) -> None:
    fields = "".join(f"{header}\r\n" for header in reply.headers)
    head = f"HTTP/1.1 {reply.status} -\r\ntransfer-encoding: chunked\r\n{fields}\r\n"
    writer.write(head.encode())
    for part in reply.parts:
        writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        await writer.drain()
    if reply.ending is Ending.WHOLE:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
