"""What the API asks of the engine and what comes back: token ids only, no text."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from pipelineserve.scheduler.requests import FinishReason


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How one token is chosen from the logits, in this order.

    The penalties and the bias change the logits; the likeliest token is then the greedy choice.
    Otherwise: temperature, top-k, top-p, min-p, and a draw from what they leave.

    Attributes:
        temperature: 0 is greedy; seed, top-k, top-p and min-p then have no effect.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the fewest likeliest tokens whose probability reaches this; 1 keeps all.
        seed: with it, the same request gives the same tokens whatever else runs beside it.
        min_p: keep tokens at least this share as likely as the likeliest one; 0 keeps all.
        repetition_penalty: divides positive and multiplies negative logits of tokens that occur in
            prompt or output; 1 changes nothing.
        frequency_penalty: taken off a token's logit for each time it occurs in the output.
        presence_penalty: taken off a token's logit once if it occurs in the output.
        logit_bias: token ids, each once, with what is added to their logits after the penalties.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def is_greedy(self) -> bool:
        """Whether no chance is involved."""
        return self.temperature <= 0.0

    @property
    def adjusts_logits(self) -> bool:
        """Whether a penalty or a bias changes the logits."""
        is_penalised = self.repetition_penalty != 1.0 or self.counts_output
        return is_penalised or bool(self.logit_bias)

    @property
    def counts_output(self) -> bool:
        """Whether a penalty depends on how often a token was put out."""
        return self.frequency_penalty != 0.0 or self.presence_penalty != 0.0


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
        num_top_logprobs: with it, every token comes with its log-probability and those of this many
            likeliest tokens.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    max_output_tokens: int | None
    sampling: SamplingParameters = GREEDY
    stop_token_ids: frozenset[int] = frozenset()
    client_id: str = ""
    priority: int = 0
    num_top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities under the model's own distribution: before penalties, bias, temperature.

    Attributes:
        chosen: that of the token that was put out.
        top_token_ids: the likeliest tokens, likeliest first; the chosen one need not be among them.
        top: their log-probabilities.
    """

    chosen: float
    top_token_ids: tuple[int, ...]
    top: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One step of a request's output.

    `token_id` is None when the request ended without a further token to show (stop token, error).
    `finish` is set on the last event, and only there; `detail` says why it is an error.
    """

    token_id: int | None
    finish: FinishReason | None = None
    cached_prompt_tokens: int = 0
    logprobs: TokenLogprobs | None = None
    detail: str = ""


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

    def fail(self, request_id: str) -> None:
        """End a live request as an error: the server cannot make an answer of its tokens.

        Its generator yields no further event and must be closed.
        """
        ...

    def status(self) -> EngineStatus:
        """Liveness and readiness, from what the loop last saw."""
        ...
