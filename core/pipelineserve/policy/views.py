"""What policies see: frozen aggregates, cheap enough to build for every micro-batch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """The scheduler at the moment in which one micro-batch is composed.

    Attributes:
        now_s: the time passed to the scheduler.
        slot_index: the slot that the micro-batch will fill.
        num_slots: micro-batches that can be in flight at once.
        max_chunk_tokens: ceiling that buffers were sized for.
        num_waiting: requests in the waiting queue.
        waiting_tokens: tokens to prefill for them; KV kept in host memory is deducted, prefix hits
            are not.
        num_prefilling: requests whose prompt has started and still has pieces to issue.
        num_decoding: requests that wait for their next token, in flight or ready.
        num_ready_decodes: those of them that are in no micro-batch now.
        kv_free_ratio: share of KV blocks that could be taken now.
    """

    now_s: float
    slot_index: int
    num_slots: int
    max_chunk_tokens: int
    num_waiting: int
    waiting_tokens: int
    num_prefilling: int
    num_decoding: int
    num_ready_decodes: int
    kv_free_ratio: float


@dataclass(frozen=True, slots=True)
class WaitingRequestView:
    """One request as the queue's order sees it when it enters the queue."""

    arrival_s: float
    remaining_tokens: int
