"""What the API asks of the engine and what comes back: token ids only, no text."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from pipelineserve.scheduler.requests import FinishReason


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How one token is drawn from the logits.

    Attributes:
        temperature: 0 is greedy; the other fields then have no effect.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the fewest likeliest tokens whose probability reaches this; 1 keeps all.
        seed: with it, the same request gives the same tokens whatever else runs beside it.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None


GREEDY = SamplingParameters(temperature=0.0)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to continue.

    Attributes:
        request_id: unique among live requests.
        prompt_token_ids: at least one token.
        max_output_tokens: None means up to the model's context.
        stop_token_ids: sampling one of them ends the request; it is not part of the output.
        client_id: requests of different clients get fair turns.
        priority: higher goes first.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    max_output_tokens: int | None
    sampling: SamplingParameters = GREEDY
    stop_token_ids: frozenset[int] = frozenset()
    client_id: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One step of a request's output.

    `token_id` is None when the request ended without a further token to show (stop token, error).
    `finish` is set on the last event, and only there.
    """

    token_id: int | None
    finish: FinishReason | None = None
    cached_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Whether the engine's whole loop lives, and whether it takes requests now."""

    is_live: bool
    is_ready: bool
    detail: str


class EngineClient(Protocol):
    """The engine as the API sees it; implemented by the engine loop and by a fake in API tests."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Submit, then yield events until the last one.

        Closing the generator before its last event cancels the request; it is then never scheduled
        again.

        Raises (at the first `__anext__`):
            QueueFullError: the waiting queue is at its bound.
            InvalidInputError: the prompt does not fit the context or the KV pool.
            EngineUnavailableError: the engine is stopping or has failed.
        """
        ...

    def finish(self, request_id: str) -> None:
        """End a live request early because its text is complete (a stop string was found)."""
        ...

    def status(self) -> EngineStatus:
        """Liveness and readiness, from what the loop last saw."""
        ...
