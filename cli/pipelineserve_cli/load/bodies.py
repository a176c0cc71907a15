"""From a planned prompt to the body of its request."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.prompts import ChatPrompt, SyntheticBlock, SyntheticPrompt, TextPrompt
from pipelineserve_cli.load.plan import LoadPlan, PlannedRequest

SymbolT = TypeVar("SymbolT")

# Short and frequent, so that most are one token of most vocabularies.
_FREQUENT = (
    "the of and to in is was for on that with as by at from it an be this which or are not had but "
    "his they have one all were been their has would what will there can more when who time about "
    "so no out up said her could them some into other then these two may first do any like my now"
)
_WORDS = _FREQUENT.split()


class Endpoint(Enum):
    """Which of the two generating endpoints."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        """Below the server's address."""
        return "/v1/completions" if self is Endpoint.COMPLETIONS else "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class BodySettings:
    """What all bodies of a run share.

    Attributes:
        vocabulary_size: synthetic token ids are below it.
        ignores_eos: asks the server to go on until max_tokens (an extension of OpenAI's API).
    """

    model: str
    endpoint: Endpoint
    ignores_eos: bool
    vocabulary_size: int = 1000
    temperature: float = 0.0


def body_of(planned: PlannedRequest, settings: BodySettings) -> bytes:
    """The JSON that is sent; the same request always has the same body."""
    fields: dict[str, Any] = {
        "model": settings.model,
        **_prompt_fields(planned, settings),
        "max_tokens": planned.max_tokens,
        "temperature": settings.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if settings.ignores_eos:
        fields["ignore_eos"] = True
    return json.dumps(fields, separators=(",", ":")).encode()


def default_endpoint(plan: LoadPlan) -> Endpoint:
    """Chat for conversations, completions for the rest."""
    has_chats = any(isinstance(request.prompt, ChatPrompt) for request in plan.requests)
    return Endpoint.CHAT if has_chats else Endpoint.COMPLETIONS


def require_endpoint(plan: LoadPlan, endpoint: Endpoint) -> None:
    """Check that the plan's prompts can be sent there.

    Raises:
        InvalidInputError: conversations cannot go to the completions endpoint.
    """
    if endpoint is not default_endpoint(plan) and endpoint is Endpoint.COMPLETIONS:
        text = "got completions for rows with messages; use chat or leave it out"
        raise InvalidInputError("the load", [Fault("--endpoint", text)])


def _prompt_fields(planned: PlannedRequest, settings: BodySettings) -> dict[str, Any]:
    is_chat = settings.endpoint is Endpoint.CHAT
    match planned.prompt:
        case ChatPrompt(messages):
            return {"messages": list(messages)}
        case TextPrompt(text):
            pass
        case SyntheticPrompt(blocks) if is_chat:
            text = " ".join(word for block in blocks for word in _draw(block, _WORDS))
        case SyntheticPrompt(blocks):
            token_ids = range(settings.vocabulary_size)
            return {"prompt": [token for block in blocks for token in _draw(block, token_ids)]}
    return {"messages": [{"role": "user", "content": text}]} if is_chat else {"prompt": text}


def _draw(block: SyntheticBlock, symbols: Sequence[SymbolT]) -> list[SymbolT]:
    return random.Random(block.key).choices(symbols, k=block.num_tokens)  # noqa: S311 - filler
