"""`GET /v1/models`: the one model that is served."""

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from pipelineserve_engine.api.context import ApiContext
from pipelineserve_engine.api.prompts import require_model


def model_router(context: ApiContext) -> APIRouter:
    """The list of models and the entry of each."""
    router = APIRouter()
    entry = {
        "id": context.served_model_name,
        "object": "model",
        "created": context.created_s,
        "owned_by": "pipelineserve",
        "max_model_len": context.max_context_tokens,
    }

    @router.get("/v1/models")
    async def list_models() -> Response:
        return JSONResponse({"object": "list", "data": [entry]})

    # Names may hold slashes.
    @router.get("/v1/models/{model_id:path}")
    async def get_model(model_id: str) -> Response:
        require_model(context, model_id)
        return JSONResponse(entry)

    return router
