"""`POST /v1/completions`: one or several choices per prompt, all generated at once."""

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
from pipelineserve_engine.api.logprobs import CompletionLogprobs
from pipelineserve_engine.api.outputs import (
    TextDelta,
    collect,
    gather_or_cancel,
    interleave,
    text_deltas,
)
from pipelineserve_engine.api.prompts import encode_prompts, generation_requests, require_model
from pipelineserve_engine.api.schemas import CompletionBody
from pipelineserve_engine.api.streaming import start_stream
from pipelineserve_engine.generation import GenerationRequest
from pipelineserve_engine.text.assembly import TextAssembler
from pipelineserve_engine.text.tokenizer import TextCodec


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
        _start(context, body, request)
        for request in generation_requests(context, body, head.id, prompts)
    ]
    if body.stream:
        shape = ChunkShape(head, "text_completion", body.includes_usage)
        return await start_stream(
            _chunks(shape, context.codec, num_prompt_tokens, body.num_samples, streams)
        )
    outputs = await gather_or_cancel([collect(stream) for stream in streams])
    has_logprobs = body.num_top_logprobs is not None
    choices = [
        completion_choice(
            index,
            output.text,
            output.finish,
            CompletionLogprobs(context.codec).take(output.scored) if has_logprobs else None,
        )
        for index, output in enumerate(outputs)
    ]
    return JSONResponse(
        {
            **head.fields("text_completion"),
            "choices": choices,
            "usage": usage_of(num_prompt_tokens, outputs, body.num_samples),
        }
    )


def _start(
    context: ApiContext, body: CompletionBody, request: GenerationRequest
) -> AsyncGenerator[TextDelta, None]:
    # The text continues the prompt's, so the prompt decides about a leading space.
    assembler = TextAssembler(context.codec, body.stop, context_ids=request.prompt_token_ids)
    return text_deltas(context.engine, request, assembler)


async def _chunks(
    shape: ChunkShape,
    codec: TextCodec,
    num_prompt_tokens: int,
    num_samples: int,
    streams: list[AsyncGenerator[TextDelta, None]],
) -> AsyncGenerator[Json, None]:
    """Text of every choice as it comes, each one's reason with its last text, the usage."""
    ends: dict[int, TextDelta] = {}
    logprobs = [CompletionLogprobs(codec) for _ in streams]
    async with aclosing(interleave(streams)) as deltas:
        async for index, delta in deltas:
            if delta.text or delta.scored is not None or delta.finish is not None:
                scored = None if delta.scored is None else logprobs[index].take([delta.scored])
                yield shape.chunk(completion_choice(index, delta.text, delta.finish, scored))
            if delta.finish is not None:
                ends[index] = delta
    if shape.includes_usage:
        by_index = [ends[index] for index in sorted(ends)]
        yield shape.usage_chunk(usage_of(num_prompt_tokens, by_index, num_samples))
