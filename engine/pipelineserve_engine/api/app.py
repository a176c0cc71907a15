"""The FastAPI application."""

from fastapi import FastAPI

from pipelineserve_engine.api.authorization import KeyGate
from pipelineserve_engine.api.body import BodyLimit
from pipelineserve_engine.api.chat import chat_router
from pipelineserve_engine.api.completions import completion_router
from pipelineserve_engine.api.context import ApiContext
from pipelineserve_engine.api.errors import install_error_handlers
from pipelineserve_engine.api.health import health_router
from pipelineserve_engine.api.models import model_router


def build_app(context: ApiContext) -> FastAPI:
    """All routes over one engine; starts nothing and owns nothing."""
    app = FastAPI(title="PipelineServe", openapi_url=None)
    app.include_router(model_router(context))
    app.include_router(chat_router(context))
    app.include_router(completion_router(context))
    app.include_router(health_router(context))
    install_error_handlers(app)
    app.add_middleware(BodyLimit, max_body_bytes=context.max_body_bytes)
    if context.keys is not None:
        app.add_middleware(KeyGate, keys=context.keys)  # the last one added comes first
    return app
