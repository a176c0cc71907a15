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
class DecodeLoad:
    """Decodes as sums: how many, and the KV that attention reads for them.

    Attributes:
        num: decodes.
        context_tokens: tokens whose keys and values they attend to, summed over them.
    """

    num: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class PromptLoad:
    """Prompts, or what is left of them, as sums; each sum changes by one term per event.

    Attributes:
        num: prompts.
        tokens: Σ r, where r are the tokens of a prompt that are still to be issued.
        squared_tokens: Σ r².
        past_product: Σ past · r, where past are the tokens of the prompt issued already.
    """

    num: int
    tokens: int
    squared_tokens: int
    past_product: int


@dataclass(frozen=True, slots=True)
class LoadView(SchedulerView):
    """What a chunk policy needs that chooses for exactly the micro-batch being composed.

    The scheduler keeps every sum as events come in, so that the view costs no walk over requests.

    Attributes:
        assigned: the decodes that this micro-batch will carry, after holding and releasing. Which
            of the ready ones will go is not known before they are issued, so their contexts are the
            mean of those.
        started: prompts with pieces issued and pieces to issue.
        waiting: prompts in the waiting queue; their prefix hits are not known, so `past_product` is
            0. `waiting_tokens` equals `waiting.tokens`.
        arrived_tokens: prompt tokens of the requests accepted within the window; preempted
            requests do not arrive again.
        arrival_window_s: length of that window: the policy's, or less just after the first
            request; above 0.
    """

    assigned: DecodeLoad
    started: PromptLoad
    waiting: PromptLoad
    arrived_tokens: int
    arrival_window_s: float

    @property
    def prefill_tokens(self) -> int:
        """Tokens that could be prefilled now, were there no budget."""
        return self.started.tokens + self.waiting.tokens


@dataclass(frozen=True, slots=True)
class WaitingRequestView:
    """One request as the queue's order sees it when it enters the queue."""

    arrival_s: float
    remaining_tokens: int
