"""`/healthz` and `/readyz` on one port, `/metrics` on another: small servers in the event loop.

An answer to `/healthz` says that the event loop turns, and nothing else: a restart cures neither
an API server that is away nor a Lease that somebody else holds.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

logger = logging.getLogger(__name__)

_TEXT = "text/plain; charset=utf-8"
_READ_TIMEOUT_S = 5.0
_WORDS = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    status: int
    body: bytes
    content_type: str = _TEXT


Pages = Mapping[str, Callable[[], Page]]


def probe_pages(is_ready: Callable[[], bool]) -> Pages:
    """What a kubelet asks for."""
    return {
        "/healthz": lambda: Page(200, b"ok\n"),
        "/readyz": lambda: Page(200, b"ok\n") if is_ready() else Page(503, b"not listed yet\n"),
    }


def metric_pages(registry: CollectorRegistry) -> Pages:
    """What Prometheus asks for."""
    return {"/metrics": lambda: Page(200, generate_latest(registry), CONTENT_TYPE_LATEST)}


@asynccontextmanager
async def serving(host: str, port: int, pages: Pages) -> AsyncIterator[int]:
    """Serve pages for the length of the block; the port, which the system picks for 0.

    Raises:
        OSError: the port cannot be listened on.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _answer(reader, writer, pages)

    server = await asyncio.start_server(answer, host, port)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: Pages) -> None:
    """One request for each connection; its headers are read and do not matter."""
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(_reply(_page(head, pages)))
            await writer.drain()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        logger.debug("probe broken off")
    finally:
        writer.close()


def _page(head: bytes, pages: Pages) -> Page:
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    path = words[1].partition("?")[0] if len(words) == 3 and words[0] == "GET" else ""
    make = pages.get(path)
    return make() if make is not None else Page(404, b"not found\n")


def _reply(page: Page) -> bytes:
    head = (
        f"HTTP/1.1 {page.status} {_WORDS[page.status]}\r\n"
        f"Content-Type: {page.content_type}\r\nContent-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + page.body
