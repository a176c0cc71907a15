"""`POST /v1/chat/completions`: one conversation, one or several answers at once."""

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
from pipelineserve_engine.api.logprobs import chat_logprobs
from pipelineserve_engine.api.outputs import (
    TextDelta,
    collect,
    gather_or_cancel,
    interleave,
    text_deltas,
)
from pipelineserve_engine.api.prompts import encode_chat, generation_requests, require_model
from pipelineserve_engine.api.schemas import ChatBody
from pipelineserve_engine.api.streaming import start_stream
from pipelineserve_engine.text.assembly import TextAssembler
from pipelineserve_engine.text.tokenizer import TextCodec


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
    streams = [
        text_deltas(context.engine, request, TextAssembler(context.codec, body.stop))
        for request in generation_requests(context, body, head.id, [prompt_ids])
    ]
    if body.stream:
        shape = ChunkShape(head, "chat.completion.chunk", body.includes_usage)
        return await start_stream(_chunks(shape, context.codec, len(prompt_ids), streams))
    outputs = await gather_or_cancel([collect(stream) for stream in streams])
    has_logprobs = body.num_top_logprobs is not None
    choices = [
        chat_choice(
            index, output, chat_logprobs(context.codec, output.scored) if has_logprobs else None
        )
        for index, output in enumerate(outputs)
    ]
    return JSONResponse(
        {
            **head.fields("chat.completion"),
            "choices": choices,
            "usage": usage_of(len(prompt_ids), outputs, len(outputs)),
        }
    )


async def _chunks(
    shape: ChunkShape,
    codec: TextCodec,
    num_prompt_tokens: int,
    streams: list[AsyncGenerator[TextDelta, None]],
) -> AsyncGenerator[Json, None]:
    """The role with a choice's first engine event, text as it comes, the reason; then the usage."""
    begun = set()
    ends: dict[int, TextDelta] = {}
    async with aclosing(interleave(streams)) as deltas:
        async for index, delta in deltas:
            if index not in begun:
                begun.add(index)
                role = {"role": "assistant", "content": ""}
                yield shape.chunk(chat_chunk_choice(index, role))
            if delta.text or delta.scored is not None:
                logprobs = None if delta.scored is None else chat_logprobs(codec, [delta.scored])
                text = {"content": delta.text}
                yield shape.chunk(chat_chunk_choice(index, text, logprobs=logprobs))
            if delta.finish is not None:
                ends[index] = delta
                yield shape.chunk(chat_chunk_choice(index, {}, finish=delta.finish))
    if shape.includes_usage:
        by_index = [ends[index] for index in sorted(ends)]
        yield shape.usage_chunk(usage_of(num_prompt_tokens, by_index, len(by_index)))
