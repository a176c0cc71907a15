"""vLLM's objects, read: what of them policies and records need, as values of ours.

They are of private classes of a pinned version (`targets`), so they have no types here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.policy.views import PromptLoad
from pipelineserve.scheduler.requests import FinishReason, RequestState
from pipelineserve_engine.addon.tracked_requests import RequestBook

# Of the scheduler, used anywhere in the add-on; that they are there is checked at the start.
ATTRIBUTES = (
    *("block_size", "connector", "current_step", "ec_connector", "is_encoder_decoder"),
    *("kv_cache_manager", "max_num_scheduled_tokens", "need_mamba_block_aligned_split"),
    *("num_sampled_tokens_per_step", "num_spec_tokens", "pause_state", "requests", "running"),
    *("scheduler_config", "vllm_config"),
)
# By the name of vLLM's own; what is not here was not the client's doing and has no success.
_FINISHES = {
    "STOP": FinishReason.STOP,
    "LENGTH": FinishReason.LENGTH,
    "REPETITION": FinishReason.STOP,
    "ABORT": FinishReason.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Standing:
    """The running requests before a turn.

    Attributes:
        decodes: that have one token to compute, and are not held.
        started: prompts with pieces issued and pieces to issue.
    """

    decodes: Sequence[Any]
    started: PromptLoad


@dataclass(frozen=True, slots=True)
class Piece:
    """What a micro-batch computes of one request.

    Attributes:
        past_tokens: computed before it.
    """

    request: Any
    num_tokens: int
    past_tokens: int
    is_decode: bool


def standing_of(scheduler: Any, book: RequestBook) -> Standing:
    """How the running requests stand; those in flight have nothing to compute and are neither."""
    decodes = []
    num = tokens = squares = products = 0
    for request in scheduler.running:
        left = request.num_tokens - request.num_computed_tokens
        tracked = book.get(request.request_id)
        if tracked is None or left < 1:
            continue
        if tracked.state is RequestState.DECODING:
            if not tracked.is_held:
                decodes.append(request)
        else:
            num += 1
            tokens += left
            squares += left * left
            products += request.num_computed_tokens * left
    return Standing(decodes, PromptLoad(num, tokens, squares, products))


def pieces_of(scheduler: Any, output: Any, book: RequestBook) -> list[Piece]:
    """What a micro-batch that was just composed computes; its tokens count as computed already."""
    pieces = []
    for request_id, num_tokens in output.num_scheduled_tokens.items():
        request = scheduler.requests[request_id]
        tracked = book.get(request_id)
        if tracked is None:  # from before control began, or one that goes on after its end
            is_decode = num_tokens == 1 and request.num_output_tokens > 0
        else:
            is_decode = tracked.state is RequestState.DECODING
        past_tokens = request.num_computed_tokens - num_tokens
        pieces.append(Piece(request, num_tokens, past_tokens, is_decode))
    return pieces


def features_of(pieces: Sequence[Piece]) -> StepFeatures:
    """Attention's work in a micro-batch."""
    contexts = squares = products = 0
    for piece in pieces:
        if piece.is_decode:
            contexts += piece.past_tokens + 1
        else:
            squares += piece.num_tokens * piece.num_tokens
            products += piece.past_tokens * piece.num_tokens
    return StepFeatures(contexts, squares, products)


def kv_free_ratio(scheduler: Any) -> float:
    """Share of the KV pool that could be taken now, what the prefix cache would give up too."""
    used_ratio: float = scheduler.kv_cache_manager.usage
    return min(1.0, max(0.0, 1.0 - used_ratio))


def kv_tokens(scheduler: Any) -> int:
    """Tokens of KV; one block of the pool is never given out."""
    num_blocks: int = scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1
    return num_blocks * int(scheduler.block_size)


def is_paused(scheduler: Any) -> bool:
    """Whether vLLM was told to pause, in part or altogether."""
    return bool(scheduler.pause_state.name != "UNPAUSED")


def may_be_held(request: Any) -> bool:
    """Whether it may sit out turns.

    Not with LoRA: vLLM counts the adapters of those that run in a turn against its limit, and would
    find more than it allows when a held one comes back.
    """
    return request.lora_request is None


def finish_of(request: Any) -> FinishReason | None:
    """How a request ended; None while it lives."""
    if not request.is_finished():
        return None
    return _FINISHES.get(request.get_finished_reason().name, FinishReason.ERROR)
