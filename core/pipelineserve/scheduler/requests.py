"""A request's life in the scheduler: waiting, prefilling, decoding, ended."""

from dataclasses import dataclass, field
from enum import Enum


class RequestState(Enum):
    """Where a live request stands; a preempted one is waiting again."""

    WAITING = "waiting"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    ENDED = "ended"


class FinishReason(Enum):
    """Why a request ended; every accepted request ends with exactly one."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"

    @property
    def is_success(self) -> bool:
        """Whether the request got all of its output."""
        return self in (FinishReason.STOP, FinishReason.LENGTH)


@dataclass(frozen=True, slots=True)
class NewRequest:
    """What the scheduler is asked for.

    Attributes:
        request_id: unique among live requests.
        prompt_token_ids: at least one token.
        max_output_tokens: None means up to the context; clipped to it in any case.
        stop_token_ids: sampling one of these ends the request; it is not part of the output.
        client_id: clients get fair turns within a priority class.
        priority: higher goes first.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    max_output_tokens: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    client_id: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What there is to know of a request that ended; times are those passed to the scheduler."""

    request_id: str
    finish: FinishReason
    arrival_s: float
    end_s: float
    first_issue_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_requeues: int
    held_s: float = 0.0
    longest_gap_s: float = 0.0

    @property
    def ttft_s(self) -> float | None:
        """Arrival to first token; None without one."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """(Last - first token) ÷ (output tokens - 1); None below two tokens."""
        if self.num_output_tokens < 2 or self.first_token_s is None or self.last_token_s is None:
            return None
        return (self.last_token_s - self.first_token_s) / (self.num_output_tokens - 1)


@dataclass(slots=True, eq=False)
class Request:
    """One live request; only the scheduler's modules change it.

    Attributes:
        token_ids: prompt and output so far.
        num_issued: how many of them had their KV computed, or will by a micro-batch in flight. A
            waiting request's are those whose KV lies in its host blocks.
        num_in_flight: micro-batches in flight that carry one of its pieces.
        block_ids: KV blocks it references, in order of position; none while it waits. Each of its
            pieces carries them as they are, so that they are never changed in place.
        host_block_ids: host blocks with its KV, in order of position; only while it waits.
        block_digests: digest of each full block of `token_ids`, computed as they are needed.
        num_published: leading blocks that were offered to the prefix cache.
        pool_index: which ready decodes it is among, once it decodes: its slot's, if it is bound to
            one.
        held_s: time in which it was held, the present hold not counted.
        held_since_s: when the present hold began; None while it is not held.
        num_tokens_at_release: its tokens when it was last released; 0 if never.
        longest_gap_s: the longest time between two of its tokens.
        num_prompt_tokens: tokens that the caller gave; kept, as it is asked for with every token.
        most_tokens: prompt and output together that it can come to; kept likewise.
        stop_token_ids: of `new`; kept likewise.
    """

    new: NewRequest
    arrival_s: float
    max_output_tokens: int
    submit_index: int
    token_ids: list[int]
    state: RequestState = RequestState.WAITING
    num_issued: int = 0
    num_in_flight: int = 0
    block_ids: tuple[int, ...] = ()
    host_block_ids: list[int] = field(default_factory=list)
    block_digests: list[bytes] = field(default_factory=list)
    num_published: int = 0
    pool_index: int = 0
    num_cached: int = 0
    num_requeues: int = 0
    first_issue_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    held_s: float = 0.0
    held_since_s: float | None = None
    num_tokens_at_release: int = 0
    longest_gap_s: float = 0.0
    num_prompt_tokens: int = field(init=False)
    most_tokens: int = field(init=False)
    stop_token_ids: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.new.prompt_token_ids)
        self.most_tokens = self.num_prompt_tokens + self.max_output_tokens
        self.stop_token_ids = self.new.stop_token_ids

    @property
    def request_id(self) -> str:
        """The caller's name for it."""
        return self.new.request_id

    @property
    def num_output_tokens(self) -> int:
        """Tokens sampled and kept so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_remaining(self) -> int:
        """Tokens still to be issued before the next one can be sampled."""
        return len(self.token_ids) - self.num_issued

    @property
    def seniority(self) -> tuple[int, float, int]:
        """Sorts the request that must yield last to the front: priority, then arrival."""
        return (-self.new.priority, self.arrival_s, self.submit_index)

    @property
    def num_output_left(self) -> int:
        """Tokens that it will still get if nothing ends it early."""
        return self.most_tokens - len(self.token_ids)

    def held_for_s(self, now_s: float) -> float:
        """Time in which it was held so far."""
        present_s = 0.0 if self.held_since_s is None else now_s - self.held_since_s
        return self.held_s + present_s

    def record(self, finish: FinishReason, now_s: float) -> RequestRecord:
        """Sum up the request as it ends."""
        return RequestRecord(
            request_id=self.request_id,
            finish=finish,
            arrival_s=self.arrival_s,
            end_s=now_s,
            first_issue_s=self.first_issue_s,
            first_token_s=self.first_token_s,
            last_token_s=self.last_token_s,
            num_prompt_tokens=self.num_prompt_tokens,
            num_output_tokens=self.num_output_tokens,
            num_cached_tokens=self.num_cached,
            num_requeues=self.num_requeues,
            held_s=self.held_for_s(now_s),
            longest_gap_s=self.longest_gap_s,
        )
