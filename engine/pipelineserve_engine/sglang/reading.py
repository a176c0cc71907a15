"""SGLang's objects, read: what of them policies and records need, as values of ours.

They are of private classes of a pinned version (`targets`), so they have no types here.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.policy.views import PromptLoad
from pipelineserve.scheduler.requests import FinishReason

# Of the scheduler, used anywhere in the add-on; that they are there is checked at the start.
ATTRIBUTES = (
    *("chunked_prefill_size", "chunked_req", "device", "disaggregation_mode", "dllm_config"),
    *("dynamic_chunk_sizer", "enable_hisparse", "enable_pdmux", "is_mixed_chunk"),
    *("max_total_num_tokens", "page_size", "prefill_decode_interval", "server_args"),
    *("spec_algorithm", "token_to_kv_pool_allocator", "tree_cache", "waiting_queue"),
    "_engine_paused",
)
_FINISHES = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
NO_PROMPTS = PromptLoad(0, 0, 0, 0)
# How the ids of requests begin that SGLang sends itself when its health is asked for.
_HEALTH_CHECK = "HEALTH_CHECK"


def decodes_of(scheduler: Any, slot_index: int) -> list[Any]:
    """The requests that a slot's next micro-batch decodes, those just prefilled in it too."""
    running = scheduler.running_mbs[slot_index].reqs
    rows = [request for request in running if not request.finished()]
    last = scheduler.last_mbs[slot_index]
    if last is None or not last.forward_mode.is_extend():
        return rows
    # A prompt that is cut, now or when this micro-batch was made, goes on; it does not decode.
    known = {id(request) for request in (*rows, last.chunked_req, scheduler.chunked_req)}
    return rows + [r for r in last.reqs if not r.finished() and id(r) not in known]


def started_prompt(scheduler: Any) -> PromptLoad:
    """The prompt with pieces issued and pieces to issue; SGLang has at most one."""
    request = scheduler.chunked_req
    if request is None:
        return NO_PROMPTS
    issued = max(request.prefix_len, request.extend_end or 0)
    left = max(0, request.seqlen - issued)
    return PromptLoad(1, left, left * left, issued * left)


def arriving_prompts(received: Iterable[Any]) -> PromptLoad:
    """Prompts among what the server has just sent; they can be prefilled at this very turn."""
    lengths = []
    for item in received:
        for request in getattr(item, "batch", None) or (item,):
            token_ids = getattr(request, "input_ids", None)
            if token_ids is not None:
                lengths.append(len(token_ids))
    return PromptLoad(len(lengths), sum(lengths), sum(n * n for n in lengths), 0)


def kv_free_ratio(scheduler: Any) -> float:
    """Share of the KV pool that could be taken now, what the prefix cache would give up too."""
    allocator, cache = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache
    free_tokens: int = allocator.available_size() + cache.evictable_size()
    pool_tokens: int = scheduler.max_total_num_tokens
    return min(1.0, max(0.0, free_tokens / pool_tokens))


def is_health_check(request: Any) -> bool:
    """Whether nobody asked for it; SGLang answers each probe with one token while it is idle."""
    is_own: bool = request.rid.startswith(_HEALTH_CHECK)
    return is_own


def may_be_held(request: Any) -> bool:
    """Whether nothing of the request lives in objects that its whole batch shares."""
    sampling = request.sampling_params
    has_penalty = (
        sampling.frequency_penalty != 0.0
        or sampling.presence_penalty != 0.0
        or sampling.repetition_penalty != 1.0
        or sampling.min_new_tokens > 0
    )
    shares = (
        request.grammar,
        request.lora_id,
        request.custom_logit_processor,
        request.beam_group,
        request.multimodal_inputs,
        request.session,
    )
    return not has_penalty and all(shared is None for shared in shares)


def num_tokens_of(batch: Any) -> int:
    """Tokens that a micro-batch computes."""
    return sum(batch.extend_lens) if batch.forward_mode.is_extend() else len(batch.reqs)


def prefilled_requests(batch: Any) -> Sequence[Any]:
    """The requests of a micro-batch that have a piece of their prompt in it."""
    if not batch.forward_mode.is_extend():
        return ()
    prefilled: list[Any] = batch.reqs[: len(batch.reqs) - len(batch.decoding_reqs or ())]
    return prefilled


def features_of(batch: Any) -> tuple[int, StepFeatures]:
    """How many decodes a micro-batch has, and attention's work in it."""
    if not batch.forward_mode.is_extend():
        contexts = sum(request.seqlen for request in batch.reqs)
        return len(batch.reqs), StepFeatures(contexts, 0, 0)
    num_prefills = len(prefilled_requests(batch))
    contexts = sum(past + 1 for past in batch.prefix_lens[num_prefills:])
    squares = products = 0
    pasts, lengths = batch.prefix_lens[:num_prefills], batch.extend_lens[:num_prefills]
    for past, length in zip(pasts, lengths, strict=True):
        squares += length * length
        products += past * length
    return len(batch.reqs) - num_prefills, StepFeatures(contexts, squares, products)


def finish_of(request: Any) -> FinishReason | None:
    """How a request ended; None while it lives."""
    if not request.finished():
        return None
    kind = request.finished_reason.to_json()["type"]
    return _FINISHES.get(kind, FinishReason.CANCELLED)
