"""From a request's body to what the engine is asked for."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from pipelineserve_engine.api.context import ApiContext
from pipelineserve_engine.api.errors import ApiError
from pipelineserve_engine.api.schemas import ChatBody, CompletionBody, Prompt
from pipelineserve_engine.generation import GenerationRequest, SamplingParameters
from pipelineserve_engine.text.tokenizer import ChatMessage, TextCodec

ResultT = TypeVar("ResultT")

# Below this, an encode takes less time than handing it to a thread does.
INLINE_CHARACTERS = 2048
# Below this, logits divided by it leave the range of float32; the choice is the greedy one anyway.
LEAST_TEMPERATURE = 1e-5


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


def generation_requests(
    context: ApiContext,
    body: ChatBody | CompletionBody,
    answer_id: str,
    prompts: Sequence[tuple[int, ...]],
) -> list[GenerationRequest]:
    """The engine's requests by index of choice: the first prompt's samples, then the next one's.

    A single one has the answer's own id. A limit beyond the context is cut to what fits. With a
    seed, sample i of a prompt has seed + i.

    Raises:
        ApiError: 400; `logit_bias` names a token that is not of this vocabulary.
    """
    _require_known_biases(context.codec, body.logit_bias)
    stop_token_ids = frozenset(body.stop_token_ids or ())
    if not body.ignore_eos:
        stop_token_ids |= context.codec.stop_token_ids
    samplings = [_sampling_parameters(body, index) for index in range(body.num_samples)]
    choices = [(prompt, sampling) for prompt in prompts for sampling in samplings]
    limit = body.output_limit
    is_single = len(choices) == 1
    return [
        GenerationRequest(
            request_id=answer_id if is_single else f"{answer_id}-{index}",
            prompt_token_ids=prompt,
            max_output_tokens=None
            if limit is None
            else min(limit, context.max_context_tokens - len(prompt)),
            sampling=sampling,
            stop_token_ids=stop_token_ids,
            client_id=body.client_id,
            priority=body.priority or 0,
            num_top_logprobs=body.num_top_logprobs,
        )
        for index, (prompt, sampling) in enumerate(choices)
    ]


def _sampling_parameters(body: ChatBody | CompletionBody, sample_index: int) -> SamplingParameters:
    temperature = 1.0 if body.temperature is None else body.temperature
    return SamplingParameters(
        temperature=temperature if temperature >= LEAST_TEMPERATURE else 0.0,
        top_k=body.top_k or 0,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=None if body.seed is None else body.seed + sample_index,
        min_p=body.min_p or 0.0,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        frequency_penalty=body.frequency_penalty or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        logit_bias=body.logit_bias,
    )


def _require_known_biases(codec: TextCodec, biases: Sequence[tuple[int, float]]) -> None:
    largest = max((token_id for token_id, _ in biases), default=0)
    if largest >= codec.vocabulary_size:
        raise ApiError(
            400,
            f"'logit_bias' names token {largest}; this model knows 0 to "
            f"{codec.vocabulary_size - 1}. Use ids of this model's tokenizer.",
            param="logit_bias",
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
