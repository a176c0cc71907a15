"""A small server with the live page and states that a test decides; stands in for a sidecar."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse, StreamingResponse

from pipelineserve_controller.page.routes import page_router
from pipelineserve_controller.state import SidecarState

_PERIOD_S = 0.1


class StateSource:
    """The state that is sent now; `is_silent` leaves streams open and says nothing."""

    def __init__(self, state: SidecarState) -> None:
        self.state = state
        self.is_silent = False
        self.num_streams = 0
        self.num_sent = 0

    def as_json(self) -> str:
        """As the sidecar writes it."""
        return json.dumps(asdict(self.state), default=_enum_value)

    async def events(self) -> AsyncIterator[str]:
        """The state again and again."""
        self.num_streams += 1
        while True:
            if not self.is_silent:
                self.num_sent += 1
                yield f"event: state\ndata: {self.as_json()}\n\n"
            await asyncio.sleep(_PERIOD_S)


def _enum_value(value: object) -> object:
    assert isinstance(value, Enum)
    return value.value


class _QuietServer(uvicorn.Server):
    # It runs in a thread, where signals cannot be caught.
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def served_page(source: StateSource, port: int = 0) -> Iterator[str]:
    """The page's address while the block runs; every connection is cut at its end."""
    with served_app(_app(source), port) as url:
        yield url


@contextmanager
def served_app(app: FastAPI, port: int = 0) -> Iterator[str]:
    """The address of any application while the block runs."""
    server = _QuietServer(
        uvicorn.Config(
            app, port=port, log_level="critical", lifespan="off", timeout_graceful_shutdown=0
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive(), "the server did not start"
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(30.0)
        assert not thread.is_alive()


def _app(source: StateSource) -> FastAPI:
    app = FastAPI()
    app.include_router(page_router())

    @app.get("/api/state")
    def state() -> JSONResponse:
        return JSONResponse(json.loads(source.as_json()))

    @app.get("/api/events")
    def events() -> StreamingResponse:
        return StreamingResponse(source.events(), media_type="text/event-stream")

    return app
