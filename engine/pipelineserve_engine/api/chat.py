"""`POST /v1/chat/completions`."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from pipelineserve_engine.api.answers import (
    AnswerHead,
    ChunkShape,
    Json,
    chat_choice,
    chat_chunk_choice,
    usage_of,
)
from pipelineserve_engine.api.body import read_body
from pipelineserve_engine.api.context import ApiContext
from pipelineserve_engine.api.disconnect import until_disconnect
from pipelineserve_engine.api.outputs import TextDelta, collect, text_deltas
from pipelineserve_engine.api.prompts import encode_chat, generation_request, require_model
from pipelineserve_engine.api.schemas import ChatBody
from pipelineserve_engine.api.streaming import start_stream
from pipelineserve_engine.text.assembly import TextAssembler


def chat_router(context: ApiContext) -> APIRouter:
    """The chat endpoint."""
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        body = await read_body(request, ChatBody)
        return await until_disconnect(request.receive, _answer(context, body))

    return router


async def _answer(context: ApiContext, body: ChatBody) -> Response:
    require_model(context, body.model)
    prompt_ids = await encode_chat(context, [m.as_chat_message() for m in body.messages])
    head = AnswerHead(
        f"chatcmpl-{context.new_id()}", int(context.unix_time_s()), context.served_model_name
    )
    request = generation_request(
        context,
        body,
        request_id=head.id,
        prompt_token_ids=prompt_ids,
        output_limit=body.output_limit,
    )
    deltas = text_deltas(context.engine, request, TextAssembler(context.codec, body.stop))
    if body.stream:
        shape = ChunkShape(head, "chat.completion.chunk", body.includes_usage)
        return await start_stream(_chunks(shape, len(prompt_ids), deltas))
    output = await collect(deltas)
    return JSONResponse(
        {
            **head.fields("chat.completion"),
            "choices": [chat_choice(output)],
            "usage": usage_of(len(prompt_ids), [output]),
        }
    )


async def _chunks(
    shape: ChunkShape, num_prompt_tokens: int, deltas: AsyncGenerator[TextDelta, None]
) -> AsyncGenerator[Json, None]:
    """The role with the first engine event, then text as it comes, the reason, the usage."""
    async with aclosing(deltas):
        is_first = True
        async for delta in deltas:
            if is_first:
                yield shape.chunk(chat_chunk_choice({"role": "assistant", "content": ""}))
                is_first = False
            if delta.text:
                yield shape.chunk(chat_chunk_choice({"content": delta.text}))
            if delta.finish is not None:
                yield shape.chunk(chat_chunk_choice({}, delta.finish))
                if shape.includes_usage:
                    yield shape.usage_chunk(usage_of(num_prompt_tokens, [delta]))
