"""Another engine's requests as we follow them: how each stands, and the sums that policies see."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipelineserve.policy.views import DecodeLoad, PromptLoad
from pipelineserve.scheduler.messages import Census
from pipelineserve.scheduler.requests import FinishReason, RequestRecord, RequestState


@dataclass(slots=True, eq=False)
class TrackedRequest:
    """One live request.

    Attributes:
        num_tokens: prompt and output.
        waiting_tokens: to prefill while it waits, 0 afterwards.
        num_tokens_at_release: its tokens when it was last released; 0 if never.
        home_slot: the slot that it was held out of.
    """

    request_id: str
    index: int
    arrival_s: float
    num_prompt_tokens: int
    waiting_tokens: int
    state: RequestState = RequestState.WAITING
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_requeues: int = 0
    first_issue_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    longest_gap_s: float = 0.0
    held_s: float = 0.0
    held_since_s: float | None = None
    num_tokens_at_release: int = 0
    home_slot: int = 0

    @property
    def num_tokens(self) -> int:
        """Prompt and output so far."""
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def is_held(self) -> bool:
        """Whether it is kept out for now."""
        return self.held_since_s is not None

    @property
    def has_token_since_release(self) -> bool:
        """Whether it may be held again."""
        return self.num_tokens > self.num_tokens_at_release

    def held_for_s(self, now_s: float) -> float:
        """Time in which it was held so far."""
        return self.held_s + (0.0 if self.held_since_s is None else now_s - self.held_since_s)

    def gap_s(self, now_s: float) -> float:
        """Time since its last token."""
        return 0.0 if self.last_token_s is None else now_s - self.last_token_s


@dataclass(slots=True)
class RequestBook:
    """Every live request once; each sum changes by one term per event.

    What the engine does with a request that is not here (health checks, requests from before a
    mistake was found) is none of the book's business and changes nothing.
    """

    _live: dict[str, TrackedRequest] = field(default_factory=dict)
    # In the order in which they were held.
    _held: dict[str, TrackedRequest] = field(default_factory=dict)
    _arrived: int = 0
    _ended: dict[FinishReason, int] = field(default_factory=dict)
    _num_waiting: int = 0
    _waiting_tokens: int = 0
    _waiting_squared_tokens: int = 0
    _num_decoding: int = 0
    _decoding_context_tokens: int = 0

    # What is known

    def get(self, request_id: str) -> TrackedRequest | None:
        """A live request."""
        return self._live.get(request_id)

    @property
    def waiting(self) -> PromptLoad:
        """The queue; what of it the prefix cache has is not known."""
        return PromptLoad(self._num_waiting, self._waiting_tokens, self._waiting_squared_tokens, 0)

    @property
    def num_decoding(self) -> int:
        """Requests that have had their first token, held ones too."""
        return self._num_decoding

    @property
    def num_running(self) -> int:
        """Requests that have KV: all that do not wait in the queue."""
        return len(self._live) - self._num_waiting

    @property
    def held(self) -> DecodeLoad:
        """Those that are kept out for now."""
        return DecodeLoad(len(self._held), sum(held.num_tokens for held in self._held.values()))

    @property
    def decoding(self) -> DecodeLoad:
        """Those that decode and are not held."""
        held = self.held
        return DecodeLoad(
            self._num_decoding - held.num, self._decoding_context_tokens - held.context_tokens
        )

    def each_held(self) -> Iterator[TrackedRequest]:
        """Those that were held first go first."""
        return iter(self._held.values())

    def census(self) -> Census:
        """Every request that arrived, counted once."""
        ended = self._ended
        return Census(
            arrived=self._arrived,
            rejected=0,  # engines refuse requests before they come here
            waiting=self._num_waiting,
            running=self.num_running,
            finished=sum(ended.get(finish, 0) for finish in FinishReason if finish.is_success),
            cancelled=ended.get(FinishReason.CANCELLED, 0),
            failed=ended.get(FinishReason.ERROR, 0),
        )

    # What happens

    def accept(self, request_id: str, num_prompt_tokens: int, now_s: float) -> None:
        """A request has entered the queue."""
        request = TrackedRequest(
            request_id, self._arrived, now_s, num_prompt_tokens, num_prompt_tokens
        )
        self._arrived += 1
        self._live[request_id] = request
        self._enter_queue(request)

    def requeue(self, request_id: str) -> None:
        """A running request lost its KV and waits again, its output to prefill as well."""
        request = self._live.get(request_id)
        if request is None or request.state is RequestState.WAITING:
            return
        self._leave_decodes(request)
        request.num_requeues += 1
        request.waiting_tokens = request.num_tokens
        request.state = RequestState.WAITING
        self._enter_queue(request)

    def start(self, request_id: str, num_cached_tokens: int, now_s: float) -> None:
        """A piece of its prompt was issued; only the first one changes anything."""
        request = self._live.get(request_id)
        if request is None or request.state is not RequestState.WAITING:
            return
        self._leave_queue(request)
        request.state = RequestState.PREFILLING
        if request.first_issue_s is None:
            request.first_issue_s = now_s
            request.num_cached_tokens = num_cached_tokens

    def advance(self, request_id: str, num_output_tokens: int, now_s: float) -> int:
        """It has so many output tokens now; return how many of them are new."""
        request = self._live.get(request_id)
        if request is None:
            return 0
        num_new = num_output_tokens - request.num_output_tokens
        if num_new <= 0:
            return 0
        if request.last_token_s is None:
            request.first_token_s = now_s
        else:
            request.longest_gap_s = max(request.longest_gap_s, now_s - request.last_token_s)
        request.last_token_s = now_s
        request.num_output_tokens = num_output_tokens
        match request.state:
            case RequestState.DECODING:
                self._decoding_context_tokens += num_new
            case RequestState.WAITING:  # its KV was taken while these were on their way
                self._leave_queue(request)
                request.waiting_tokens = request.num_tokens
                self._enter_queue(request)
            case _:
                self._join_decodes(request)
        return num_new

    def hold(self, request: TrackedRequest, slot_index: int, now_s: float) -> None:
        """It leaves this slot for now."""
        request.held_since_s = now_s
        request.home_slot = slot_index
        self._held[request.request_id] = request

    def release(self, request: TrackedRequest, now_s: float) -> None:
        """It joins a slot again."""
        request.held_s = request.held_for_s(now_s)
        request.held_since_s = None
        request.num_tokens_at_release = request.num_tokens
        del self._held[request.request_id]

    def end(self, request_id: str, finish: FinishReason, now_s: float) -> RequestRecord | None:
        """It is over; None if it is not live."""
        request = self._live.pop(request_id, None)
        if request is None:
            return None
        if request.state is RequestState.WAITING:
            self._leave_queue(request)
        self._leave_decodes(request)
        self._held.pop(request_id, None)
        request.state = RequestState.ENDED
        self._ended[finish] = self._ended.get(finish, 0) + 1
        return RequestRecord(
            request_id=request_id,
            finish=finish,
            arrival_s=request.arrival_s,
            end_s=now_s,
            first_issue_s=request.first_issue_s,
            first_token_s=request.first_token_s,
            last_token_s=request.last_token_s,
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=request.num_output_tokens,
            num_cached_tokens=request.num_cached_tokens,
            num_requeues=request.num_requeues,
            held_s=request.held_for_s(now_s),
            longest_gap_s=request.longest_gap_s,
        )

    def _enter_queue(self, request: TrackedRequest) -> None:
        self._num_waiting += 1
        self._waiting_tokens += request.waiting_tokens
        self._waiting_squared_tokens += request.waiting_tokens**2

    def _leave_queue(self, request: TrackedRequest) -> None:
        self._num_waiting -= 1
        self._waiting_tokens -= request.waiting_tokens
        self._waiting_squared_tokens -= request.waiting_tokens**2
        request.waiting_tokens = 0

    def _join_decodes(self, request: TrackedRequest) -> None:
        request.state = RequestState.DECODING
        self._num_decoding += 1
        self._decoding_context_tokens += request.num_tokens

    def _leave_decodes(self, request: TrackedRequest) -> None:
        if request.state is RequestState.DECODING:
            self._num_decoding -= 1
            self._decoding_context_tokens -= request.num_tokens
