"""Requests that decode: in flight, ready or held, with the sums over them that policies see."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from pipelineserve.policy.views import DecodeLoad
from pipelineserve.scheduler.requests import Request


class _Pool:
    """Ready decodes that the same micro-batches may take."""

    __slots__ = ("context_tokens", "requests")

    def __init__(self) -> None:
        # In the order in which they became ready.
        self.requests: dict[Request, None] = {}
        self.context_tokens = 0


class DecodePool:
    """Every decoding request once; sums are kept, so that a view costs no walk.

    Args:
        num_slots: each slot has decodes of its own where this is above 1, and all share them
            where it is 1.

    Attributes:
        now_s: the time of the latest micro-batch; holds that end in between end then.
    """

    def __init__(self, num_slots: int = 1) -> None:
        self._pools = [_Pool() for _ in range(num_slots)]
        # That of the slot that is being filled.
        self._current = self._pools[0]
        self._current_index = 0
        # In the order in which they were held.
        self._held: dict[Request, None] = {}
        self._num = self._context_tokens = 0
        self._held_context_tokens = 0
        self.now_s = 0.0

    @property
    def num(self) -> int:
        """All that decode."""
        return self._num

    @property
    def ready(self) -> DecodeLoad:
        """Those that could go with the micro-batch of the slot that is being filled."""
        return DecodeLoad(len(self._current.requests), self._current.context_tokens)

    @property
    def has_ready_elsewhere(self) -> bool:
        """Whether another slot's micro-batch could take any."""
        return any(pool.requests for pool in self._pools if pool is not self._current)

    @property
    def held(self) -> DecodeLoad:
        """Those that are kept out for now."""
        return DecodeLoad(len(self._held), self._held_context_tokens)

    @property
    def has_held(self) -> bool:
        """Whether there are any of them."""
        return bool(self._held)

    @property
    def live(self) -> DecodeLoad:
        """Those that are not held: ready or in flight."""
        return DecodeLoad(
            self._num - len(self._held), self._context_tokens - self._held_context_tokens
        )

    def __contains__(self, request: Request) -> bool:
        """Whether the request is ready."""
        return request in self._pools[request.pool_index].requests

    def fill(self, slot_index: int) -> None:
        """From here on this slot is being filled."""
        if len(self._pools) > 1:
            self._current_index = slot_index
            self._current = self._pools[slot_index]

    def num_ready_for(self, slot_index: int) -> int:
        """Those that could go with the next micro-batch of a slot."""
        return len(self._pools[slot_index % len(self._pools)].requests)

    def is_held(self, request: Request) -> bool:
        """Whether the request is kept out for now."""
        return request in self._held

    def first_ready(self, num_wanted: int) -> list[Request]:
        """Those of the slot that is being filled that became ready first."""
        return list(islice(self._current.requests, num_wanted))

    def put_least_slack_first(self, tpot_target_s: float) -> None:
        """Order those of the slot that is being filled by when their next token is due."""

        def due_s(request: Request) -> float:
            first_s = request.first_token_s or 0.0  # whoever is ready has had one
            return first_s + tpot_target_s * request.num_output_tokens

        self._current.requests = dict.fromkeys(sorted(self._current.requests, key=due_s))

    def each_held(self) -> Iterator[Request]:
        """Those that were held first go first."""
        return iter(self._held)

    def join(self, request: Request) -> None:
        """The last piece of the prompt was issued, with the slot that is being filled."""
        request.pool_index = self._current_index
        self._num += 1
        self._context_tokens += len(request.token_ids)

    def count_tokens(self, num_tokens: int) -> None:
        """Tokens were added to the `token_ids` of some that are in flight."""
        self._context_tokens += num_tokens

    def make_ready(self, requests: Sequence[Request]) -> None:
        """They have come back from one micro-batch and wait for the next, in this order."""
        if not requests:
            return
        # Whoever comes back together joined, or was taken, in the same slot.
        pool = self._pools[requests[0].pool_index]
        ready = dict.fromkeys(requests)
        pool.requests = pool.requests | ready if pool.requests else ready
        pool.context_tokens += _context_of(requests)

    def issue(self, requests: Sequence[Request]) -> None:
        """They, once each and all of one slot, go with a micro-batch."""
        if not requests:
            return
        pool = self._pools[requests[0].pool_index]
        if len(requests) == len(pool.requests):
            pool.requests.clear()
            pool.context_tokens = 0
            return
        for request in requests:
            del pool.requests[request]
        pool.context_tokens -= _context_of(requests)

    def hold(self, request: Request) -> None:
        """Keep a ready one out."""
        self.issue([request])
        self._held[request] = None
        self._held_context_tokens += len(request.token_ids)
        request.held_since_s = self.now_s

    def release(self, requests: list[Request]) -> None:
        """Let held ones go first with the slot that is being filled, in this order."""
        pool = self._current
        for request in requests:
            self._drop_held(request)
            request.num_tokens_at_release = len(request.token_ids)
            request.pool_index = self._current_index
            pool.context_tokens += len(request.token_ids)
        if requests:
            pool.requests = dict.fromkeys(requests) | pool.requests

    def leave(self, request: Request) -> None:
        """It ended or goes back to the queue, wherever it stands."""
        self._num -= 1
        self._context_tokens -= len(request.token_ids)
        if request in self:
            self.issue([request])
        elif self.is_held(request):
            self._drop_held(request)

    def _drop_held(self, request: Request) -> None:
        del self._held[request]
        self._held_context_tokens -= len(request.token_ids)
        request.held_s = request.held_for_s(self.now_s)
        request.held_since_s = None


def _context_of(requests: Iterable[Request]) -> int:
    return sum([len(request.token_ids) for request in requests])
