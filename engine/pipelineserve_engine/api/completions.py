"""`POST /v1/completions`: one choice per prompt, all generated at once."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from pipelineserve_engine.api.answers import (
    AnswerHead,
    ChunkShape,
    Json,
    completion_choice,
    usage_of,
)
from pipelineserve_engine.api.body import read_body
from pipelineserve_engine.api.context import ApiContext
from pipelineserve_engine.api.disconnect import until_disconnect
from pipelineserve_engine.api.outputs import (
    TextDelta,
    collect,
    gather_or_cancel,
    interleave,
    text_deltas,
)
from pipelineserve_engine.api.prompts import encode_prompts, generation_request, require_model
from pipelineserve_engine.api.schemas import CompletionBody
from pipelineserve_engine.api.streaming import start_stream
from pipelineserve_engine.text.assembly import TextAssembler


def completion_router(context: ApiContext) -> APIRouter:
    """The completion endpoint."""
    router = APIRouter()

    @router.post("/v1/completions")
    async def create_completion(request: Request) -> Response:
        body = await read_body(request, CompletionBody)
        return await until_disconnect(request.receive, _answer(context, body))

    return router


async def _answer(context: ApiContext, body: CompletionBody) -> Response:
    require_model(context, body.model)
    prompts = await encode_prompts(context, body.prompt)
    num_prompt_tokens = sum(map(len, prompts))
    head = AnswerHead(
        f"cmpl-{context.new_id()}", int(context.unix_time_s()), context.served_model_name
    )
    streams = [
        _start(context, body, f"{head.id}-{index}", prompt_ids)
        for index, prompt_ids in enumerate(prompts)
    ]
    if body.stream:
        shape = ChunkShape(head, "text_completion", body.includes_usage)
        return await start_stream(_chunks(shape, num_prompt_tokens, streams))
    outputs = await gather_or_cancel([collect(stream) for stream in streams])
    choices = [completion_choice(i, out.text, out.finish) for i, out in enumerate(outputs)]
    return JSONResponse(
        {
            **head.fields("text_completion"),
            "choices": choices,
            "usage": usage_of(num_prompt_tokens, outputs),
        }
    )


def _start(
    context: ApiContext, body: CompletionBody, request_id: str, prompt_ids: tuple[int, ...]
) -> AsyncGenerator[TextDelta, None]:
    request = generation_request(
        context,
        body,
        request_id=request_id,
        prompt_token_ids=prompt_ids,
        output_limit=body.output_limit,
    )
    # The text continues the prompt's, so the prompt decides about a leading space.
    assembler = TextAssembler(context.codec, body.stop, context_ids=prompt_ids)
    return text_deltas(context.engine, request, assembler)


async def _chunks(
    shape: ChunkShape, num_prompt_tokens: int, streams: list[AsyncGenerator[TextDelta, None]]
) -> AsyncGenerator[Json, None]:
    """Text of every prompt as it comes, each one's reason with its last text, the usage."""
    ends = []
    async with aclosing(interleave(streams)) as deltas:
        async for index, delta in deltas:
            if delta.text or delta.finish is not None:
                yield shape.chunk(completion_choice(index, delta.text, delta.finish))
            if delta.finish is not None:
                ends.append(delta)
    if shape.includes_usage:
        yield shape.usage_chunk(usage_of(num_prompt_tokens, ends))
