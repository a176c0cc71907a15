"""`/health`, `/ready` and `/metrics`, for Kubernetes and Prometheus."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from pipelineserve_engine.api.context import ApiContext


def health_router(context: ApiContext) -> APIRouter:
    """Liveness, readiness and metrics."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> Response:
        status = context.engine.status()
        return _verdict(status.is_live, "live", status.detail)

    @router.get("/ready")
    async def ready() -> Response:
        status = context.engine.status()
        return _verdict(status.is_ready, "ready", status.detail)

    # Not async: rendering many series takes milliseconds, which belong in a thread.
    @router.get("/metrics")
    def metrics() -> Response:
        text = generate_latest(context.registry)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    return router


def _verdict(is_well: bool, word: str, detail: str) -> Response:
    status = word if is_well else f"not {word}"
    return JSONResponse({"status": status, "detail": detail}, 200 if is_well else 503)
