"""The sidecar over HTTP: state, events, metrics, health. Read only; nothing is changed here."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import CollectorRegistry, generate_latest

from pipelineserve.policy.control.journal_format import to_json
from pipelineserve_controller.loop import ControlLoop
from pipelineserve_controller.page.routes import page_router
from pipelineserve_controller.telemetry import StateCollector

# A page needs no more; a turn may come more often.
EVENT_PERIOD_S = 1.0
# Turns come several times a second: without one for this long the loop hangs.
STUCK_AFTER_S = 10.0
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def state_text(loop: ControlLoop) -> str:
    """The state as JSON."""
    return json.dumps(to_json(loop.state), separators=(",", ":"), allow_nan=False)


def build_app(
    loop: ControlLoop, num_journal_lost: Callable[[], int], monotonic_s: Callable[[], float]
) -> FastAPI:
    """The application; the page is at `/`."""
    app = FastAPI(title="PipelineServe controller", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(page_router())
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StateCollector(loop, num_journal_lost))

    @app.get("/healthz")
    async def healthz() -> Response:
        """Whether the process answers at all."""
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    async def readyz() -> Response:
        """Whether turns are taken; an engine that is away makes no sidecar unready."""
        turned_at_s = loop.turned_at_s
        if turned_at_s is None or monotonic_s() - turned_at_s > STUCK_AFTER_S:
            return PlainTextResponse("no turn is taken\n", status_code=503)
        return PlainTextResponse("ok\n")

    @app.get("/metrics")
    async def metrics_page() -> Response:
        """The catalogue's series."""
        return Response(generate_latest(registry), media_type=_METRICS_TYPE)

    @app.get("/api/state")
    async def state() -> Response:
        """The state of this moment."""
        return Response(
            state_text(loop),
            media_type="application/json",
            headers={"Cache-Control": "no-store"},
        )

    @app.get("/api/events")
    async def events() -> Response:
        """The state again and again, as server-sent events named `state`."""
        return StreamingResponse(
            _events(loop),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    return app


async def _events(loop: ControlLoop) -> AsyncIterator[str]:
    """One event a second; a comment where there is no news, so that a dead connection is found."""
    yield "retry: 1000\n\n"
    while True:
        if await loop.wait_for_news(EVENT_PERIOD_S):
            yield f"event: state\ndata: {state_text(loop)}\n\n"
        else:
            yield ": no news\n\n"
        await asyncio.sleep(EVENT_PERIOD_S)
