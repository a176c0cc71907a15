"""What a chunk policy sees of the scheduler, made from sums that are kept."""

from collections.abc import Iterable

from pipelineserve.policy.views import DecodeLoad, LoadView, PromptLoad, SchedulerView
from pipelineserve.scheduler.requests import Request


def load_view(
    base: SchedulerView,
    *,
    num_ready: int,
    assigned: DecodeLoad,
    started: PromptLoad,
    waiting_squared_tokens: int,
    arrived: tuple[int, float],
) -> LoadView:
    """The view of one micro-batch, after decodes were held and released for it.

    Args:
        base: how things stood before.
        num_ready: decodes that could go with it now.
        assigned: those that will.
        started: prompts with pieces to issue.
        waiting_squared_tokens: Σ r² over the waiting queue.
        arrived: prompt tokens that arrived lately, and the seconds that lately means.
    """
    return LoadView(
        now_s=base.now_s,
        slot_index=base.slot_index,
        num_slots=base.num_slots,
        max_chunk_tokens=base.max_chunk_tokens,
        num_waiting=base.num_waiting,
        waiting_tokens=base.waiting_tokens,
        num_prefilling=base.num_prefilling,
        num_decoding=base.num_decoding,
        num_ready_decodes=num_ready,
        kv_free_ratio=base.kv_free_ratio,
        assigned=assigned,
        started=started,
        waiting=PromptLoad(
            num=base.num_waiting,
            tokens=base.waiting_tokens,
            squared_tokens=waiting_squared_tokens,
            past_product=0,
        ),
        arrived_tokens=arrived[0],
        arrival_window_s=arrived[1],
    )


def load_of(started: Iterable[Request]) -> PromptLoad:
    """Sums over started prompts; there are rarely more than two."""
    num = total = squares = products = 0
    for request in started:
        tokens = request.num_remaining
        num += 1
        total += tokens
        squares += tokens * tokens
        products += request.num_issued * tokens
    return PromptLoad(num, total, squares, products)


def share_of(ready: DecodeLoad, max_decodes: int) -> DecodeLoad:
    """So many of the ready decodes; whose contexts they have is known on average."""
    num = min(max_decodes, ready.num)
    context_tokens = round(ready.context_tokens * num / ready.num) if ready.num else 0
    return DecodeLoad(num, context_tokens)
