"""Request bodies of `/v1/chat/completions` and `/v1/completions`, every field bounded."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from pipelineserve_engine.text.tokenizer import ChatMessage

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions
MOST_STOP_STRINGS = 4
LONGEST_STOP_CHARACTERS = 256
MOST_PROMPTS = 128
MOST_SAMPLES = 16
MOST_CHOICES = 128
MOST_BIASES = 300  # OpenAI's
LARGEST_BIAS = 100.0
LARGEST_TOKEN_ID = 2**31 - 1

Prompt = str | tuple[int, ...]


def _fault(expected: str) -> PydanticCustomError:
    return PydanticCustomError("expected", "{expected}", {"expected": expected})


class _OnlyDefault:
    """A parameter that this server does not implement: only values that ask for nothing pass."""

    def __init__(self, *harmless: object) -> None:
        self._harmless = (None, *harmless)

    def __call__(self, value: object) -> object:
        for harmless in self._harmless:
            # True == 1 in Python, but not in JSON.
            if value == harmless and isinstance(value, bool) == isinstance(harmless, bool):
                return value
        allowed = " or ".join(str(harmless).lower() for harmless in self._harmless[1:])
        alternative = f" or send {allowed}" if allowed else ""
        raise _fault(f"Not supported by this server; leave it out{alternative}")


def _parse_stop(value: object) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise _fault("Expected a string or a list of strings")
    if len(stops) > MOST_STOP_STRINGS:
        raise _fault(f"Expected at most {MOST_STOP_STRINGS} stop strings")
    if not all(1 <= len(stop) <= LONGEST_STOP_CHARACTERS for stop in stops):
        raise _fault(f"Expected stop strings of 1 to {LONGEST_STOP_CHARACTERS} characters")
    return tuple(stops)


def _parse_content(value: object) -> str:
    """A string, or text parts; parts are separate paragraphs, so a line break joins them."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise _fault("Expected a string or a list of text parts")
    return "\n".join(_parse_part(part, index) for index, part in enumerate(value))


def _parse_part(part: object, index: int) -> str:
    match part:
        case {"type": "text", "text": str(text), **rest} if not rest:
            return text
        case _:
            raise _fault(
                f'Part {index}: expected {{"type": "text", "text": "..."}}; only text is supported'
            )


def _parse_prompts(value: object) -> tuple[Prompt, ...]:
    """A string, strings, token ids, or lists of token ids, as a tuple of prompts."""
    prompts = [value] if _is_prompt(value) else value
    if not isinstance(prompts, list) or not prompts or not all(map(_is_prompt, prompts)):
        raise _fault(
            "Expected a string, a list of strings, a list of token ids or a list of such lists, "
            "none of them empty"
        )
    if len(prompts) > MOST_PROMPTS:
        raise _fault(f"Expected at most {MOST_PROMPTS} prompts")
    return tuple(prompt if isinstance(prompt, str) else tuple(prompt) for prompt in prompts)


def _is_prompt(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(type(token_id) is int for token_id in value)
    return isinstance(value, str)


def _parse_logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    """OpenAI's object of token ids, which are strings in JSON, to biases."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise _fault('Expected an object of token ids to numbers, like {"50256": -100}')
    if len(value) > MOST_BIASES:
        raise _fault(f"Expected at most {MOST_BIASES} token ids")
    biases = {_parse_token_id(key): _parse_bias(key, bias) for key, bias in value.items()}
    if len(biases) < len(value):
        raise _fault("Expected each token id once")
    return tuple(biases.items())


def _parse_token_id(key: str) -> int:
    is_number = key.isascii() and key.isdigit() and len(key) <= 10
    if not is_number or int(key) > LARGEST_TOKEN_ID:
        raise _fault('Expected token ids as keys, like "50256"')
    return int(key)


def _parse_bias(key: str, bias: object) -> float:
    match bias:
        case bool():
            pass  # an integer in Python, but not in JSON
        case int() | float() if abs(bias) <= LARGEST_BIAS:
            return float(bias)
    raise _fault(f"Token {key}: expected a number from {-LARGEST_BIAS:g} to {LARGEST_BIAS:g}")


def _parse_response_format(value: object) -> object:
    if value is None or value == {"type": "text"}:
        return value
    raise _fault(
        'Only {"type": "text"} is supported, there is no JSON mode; ask for JSON in the prompt, '
        "check the answer and ask again if it is none"
    )


Unsupported = Annotated[Any, AfterValidator(_OnlyDefault())]
OnlyOne = Annotated[Any, AfterValidator(_OnlyDefault(1))]
OnlyFalse = Annotated[Any, AfterValidator(_OnlyDefault(False))]
NoneOrEmpty = Annotated[Any, AfterValidator(_OnlyDefault([], {}))]
OutputTokens = Annotated[int, Field(ge=1, le=2**31 - 1)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
ClientId = Annotated[str, Field(max_length=256)]
TokenId = Annotated[int, Field(ge=0, le=LARGEST_TOKEN_ID)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class StreamOptions(_Strict):
    """What a stream carries besides its text."""

    include_usage: bool | None = None
    include_obfuscation: OnlyFalse = None


class GenerationBody(_Strict):
    """What both endpoints share.

    Extensions of OpenAI's API: `top_k`, `min_p`, `repetition_penalty`, `stop_token_ids`,
    `ignore_eos` and `priority`. `prompt_cache_key` is only a hint, and prefixes are found without.
    """

    model: Annotated[str, Field(min_length=1, max_length=256)]
    max_tokens: OutputTokens | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.1, le=10, allow_inf_nan=False)] | None = None
    logit_bias: Annotated[tuple[tuple[int, float], ...], PlainValidator(_parse_logit_bias)] = ()
    n: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Annotated[tuple[str, ...], PlainValidator(_parse_stop)] = ()
    stop_token_ids: Annotated[list[TokenId], Field(max_length=128)] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: ClientId | None = None
    safety_identifier: ClientId | None = None
    prompt_cache_key: Annotated[str, Field(max_length=256)] | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] | None = None

    @field_validator("stream_options")
    @classmethod
    def _only_with_a_stream(
        cls, options: StreamOptions | None, others: ValidationInfo
    ) -> StreamOptions | None:
        if options is not None and not others.data.get("stream"):
            raise _fault('Only allowed together with "stream": true')
        return options

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk that holds the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def num_samples(self) -> int:
        """Answers to each prompt."""
        return self.n or 1

    @property
    def client_id(self) -> str:
        """Who gets fair turns with the others; nobody in particular by default."""
        return self.user or self.safety_identifier or ""


class MessageBody(_Strict):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, PlainValidator(_parse_content)]
    name: Annotated[str, Field(max_length=256)] | None = None

    # Clients send back an assistant's message as they got it, with these empty.
    refusal: Unsupported = None
    audio: Unsupported = None
    function_call: Unsupported = None
    tool_calls: NoneOrEmpty = None
    annotations: NoneOrEmpty = None

    def as_chat_message(self) -> ChatMessage:
        """The message for chat templates, which call OpenAI's role "developer" "system"."""
        role = "system" if self.role == "developer" else self.role
        return ChatMessage(role, self.content, self.name)


class ChatBody(GenerationBody):
    """Body of `POST /v1/chat/completions`."""

    messages: Annotated[list[MessageBody], Field(min_length=1, max_length=4096)]
    max_completion_tokens: OutputTokens | None = None

    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: NoneOrEmpty = None
    tool_choice: Annotated[Any, AfterValidator(_OnlyDefault("none", "auto"))] = None
    parallel_tool_calls: Annotated[Any, AfterValidator(_OnlyDefault(True, False))] = None
    response_format: Annotated[Any, AfterValidator(_parse_response_format)] = None

    @field_validator("top_logprobs")
    @classmethod
    def _only_with_logprobs(cls, number: int | None, others: ValidationInfo) -> int | None:
        if number and not others.data.get("logprobs"):
            raise _fault('Only allowed together with "logprobs": true')
        return number

    @field_validator("max_completion_tokens")
    @classmethod
    def _one_limit(cls, limit: int | None, others: ValidationInfo) -> int | None:
        older = others.data.get("max_tokens")
        if limit is not None and older not in (None, limit):
            raise _fault(f"Send this or 'max_tokens' (now {older}), not both")
        return limit

    @property
    def output_limit(self) -> int | None:
        """Most tokens to generate; None for as many as fit the context."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def num_top_logprobs(self) -> int | None:
        """How many likeliest tokens to name beside each one; None for no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionBody(GenerationBody):
    """Body of `POST /v1/completions`."""

    prompt: Annotated[tuple[Prompt, ...], PlainValidator(_parse_prompts)]
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None

    echo: OnlyFalse = None
    best_of: OnlyOne = None
    suffix: Annotated[Any, AfterValidator(_OnlyDefault(""))] = None

    @field_validator("prompt")
    @classmethod
    def _few_choices(
        cls, prompts: tuple[Prompt, ...], others: ValidationInfo
    ) -> tuple[Prompt, ...]:
        num_choices = len(prompts) * (others.data.get("n") or 1)
        if num_choices > MOST_CHOICES:
            raise _fault(f"Expected at most {MOST_CHOICES} prompts times 'n', got {num_choices}")
        return prompts

    @property
    def output_limit(self) -> int:
        """Most tokens to generate."""
        return self.max_tokens or DEFAULT_COMPLETION_TOKENS

    @property
    def num_top_logprobs(self) -> int | None:
        """How many likeliest tokens to name beside each one; None for no log-probabilities."""
        return self.logprobs
