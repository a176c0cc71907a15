"""The API on a real server, in the test's own event loop."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import openai
import uvicorn
from prometheus_client import CollectorRegistry

from character_codec import CharacterCodec
from fake_engine import FakeEngine
from pipelineserve_engine.api.app import build_app
from pipelineserve_engine.api.authorization import KeyFile
from pipelineserve_engine.api.context import ApiContext
from pipelineserve_engine.generation import EngineClient
from pipelineserve_engine.text.tokenizer import TextCodec

MODEL = "org/tiny"


class _Server(uvicorn.Server):
    """Leaves the test runner's signal handlers alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def an_api_context(
    engine: EngineClient | None = None,
    *,
    codec: TextCodec | None = None,
    max_context_tokens: int = 200_000,
    registry: CollectorRegistry | None = None,
    max_body_bytes: int = 8 * 1024 * 1024,
    keys: KeyFile | None = None,
) -> ApiContext:
    """A context with ids id0, id1, ... at Unix time 1000."""
    ids = count()
    return ApiContext(
        engine=engine or FakeEngine(),
        codec=codec or CharacterCodec(),
        served_model_name=MODEL,
        created_s=900,
        max_context_tokens=max_context_tokens,
        registry=registry or CollectorRegistry(),
        new_id=lambda: f"id{next(ids)}",
        unix_time_s=lambda: 1000.5,
        max_body_bytes=max_body_bytes,
        keys=keys,
    )


@dataclass(frozen=True)
class RawAnswer:
    """An HTTP answer, headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The parsed body."""
        return json.loads(self.body)


@dataclass
class RunningApi:
    """Where the server listens, and ways to talk to it."""

    port: int

    @cached_property
    def client(self) -> openai.AsyncOpenAI:
        """The official client; it takes long to build, so only where it is used."""
        return openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1",
            api_key="-",
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(verify=False),
        )

    async def close(self) -> None:
        """Close what was opened."""
        if "client" in self.__dict__:
            await self.client.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> RawAnswer:
        """One request on its own connection."""
        reader, writer = await self.connect()
        writer.write(request_bytes(method, path, body, headers))
        answer = await reader.read()
        writer.close()
        return _parse(answer)

    async def post(self, path: str, fields: Mapping[str, Any]) -> RawAnswer:
        """POST a JSON object."""
        return await self.send("POST", path, json.dumps(fields).encode())


def request_bytes(
    method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> bytes:
    """An HTTP/1.1 request after which the server closes the connection."""
    fields = {"host": "test", "connection": "close", "content-length": str(len(body))}
    lines = [f"{name}: {value}\r\n" for name, value in {**fields, **(headers or {})}.items()]
    return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + body


def _parse(answer: bytes) -> RawAnswer:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _join_chunks(body)
    return RawAnswer(int(first.split()[1]), headers, body)


def _join_chunks(body: bytes) -> bytes:
    joined = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        joined, body = joined + body[:length], body[length + 2 :]
    return joined


@asynccontextmanager
async def serving(context: ApiContext) -> AsyncGenerator[RunningApi, None]:
    """Serve on a free port until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = uvicorn.Config(build_app(context), log_config=None, lifespan="off", ws="none")
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    api = RunningApi(port)
    try:
        async with asyncio.timeout(60):
            yield api
    finally:
        await api.close()
        server.should_exit = True
        await task
        listener.close()
