"""From a request's body to what the engine is asked for."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pipelineserve_engine.api.context import ApiContext
from pipelineserve_engine.api.errors import ApiError
from pipelineserve_engine.api.schemas import GenerationBody, Prompt
from pipelineserve_engine.generation import GenerationRequest, SamplingParameters
from pipelineserve_engine.text.tokenizer import ChatMessage, TextCodec

ResultT = TypeVar("ResultT")

# Below this, an encode takes less time than handing it to a thread does.
INLINE_CHARACTERS = 2048


async def encode_chat(context: ApiContext, messages: list[ChatMessage]) -> tuple[int, ...]:
    """Token ids of a conversation.

    Raises:
        InvalidInputError: the model's chat template refuses it.
        ApiError: 400; it leaves no room for an answer.
    """
    num_characters = sum(len(message.content) for message in messages)
    token_ids = await _encode(num_characters, lambda: context.codec.encode_chat(messages))
    _require_fit(context, token_ids, param="messages")
    return token_ids


async def encode_prompts(context: ApiContext, prompts: tuple[Prompt, ...]) -> list[tuple[int, ...]]:
    """Token ids of plain prompts; ids given by the client are only checked.

    Raises:
        ApiError: 400; one is empty, not of this vocabulary, or leaves no room for an answer.
    """

    def encode() -> list[tuple[int, ...]]:
        return [_prompt_ids(context.codec, prompt) for prompt in prompts]

    encoded = await _encode(sum(map(len, prompts)), encode)
    for token_ids in encoded:
        _require_fit(context, token_ids, param="prompt")
    return encoded


def require_model(context: ApiContext, model: str) -> None:
    """Raise a 404 unless this is the model that is served here."""
    if model != context.served_model_name:
        raise ApiError(
            404,
            f"The model '{model}' does not exist here; this server has "
            f"'{context.served_model_name}'.",
            param="model",
            code="model_not_found",
        )


def generation_request(
    context: ApiContext,
    body: GenerationBody,
    *,
    request_id: str,
    prompt_token_ids: tuple[int, ...],
    output_limit: int | None,
) -> GenerationRequest:
    """The engine's request; a limit beyond the context is cut to what fits."""
    room = context.max_context_tokens - len(prompt_token_ids)
    return GenerationRequest(
        request_id=request_id,
        prompt_token_ids=prompt_token_ids,
        max_output_tokens=None if output_limit is None else min(output_limit, room),
        sampling=SamplingParameters(
            temperature=1.0 if body.temperature is None else body.temperature,
            top_k=body.top_k or 0,
            top_p=1.0 if body.top_p is None else body.top_p,
            seed=body.seed,
        ),
        stop_token_ids=context.codec.stop_token_ids.union(body.stop_token_ids or ()),
        client_id=body.user or "",
        priority=body.priority or 0,
    )


def _prompt_ids(codec: TextCodec, prompt: Prompt) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return codec.encode_prompt(prompt)
    _require_vocabulary(codec, prompt)
    return prompt


async def _encode(num_characters: int, encode: Callable[[], ResultT]) -> ResultT:
    if num_characters <= INLINE_CHARACTERS:
        return encode()
    return await asyncio.to_thread(encode)


def _require_vocabulary(codec: TextCodec, token_ids: tuple[int, ...]) -> None:
    size = codec.vocabulary_size
    if not (min(token_ids) >= 0 and max(token_ids) < size):
        raise ApiError(
            400,
            f"The prompt's token ids go from {min(token_ids)} to {max(token_ids)}; this model "
            f"knows 0 to {size - 1}. Encode the prompt with this model's tokenizer.",
            param="prompt",
        )


def _require_fit(context: ApiContext, token_ids: tuple[int, ...], param: str) -> None:
    limit = context.max_context_tokens
    if not token_ids:
        raise ApiError(400, f"'{param}' has no tokens; send at least one.", param=param)
    if len(token_ids) >= limit:
        raise ApiError(
            400,
            f"The prompt has {len(token_ids)} tokens; this model's context is {limit} tokens, "
            f"prompt and answer together. Shorten '{param}' to {limit - 1} tokens or fewer.",
            param=param,
            code="context_length_exceeded",
        )
