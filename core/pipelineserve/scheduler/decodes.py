"""Requests that decode: in flight, ready or held, with the sums over them that policies see."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from pipelineserve.policy.views import DecodeLoad
from pipelineserve.scheduler.requests import Request


class DecodePool:
    """Every decoding request once; sums are kept, so that a view costs no walk.

    Attributes:
        now_s: the time of the latest micro-batch; holds that end in between end then.
    """

    def __init__(self) -> None:
        # In the order in which they became ready.
        self._ready: dict[Request, None] = {}
        # In the order in which they were held.
        self._held: dict[Request, None] = {}
        self._num = self._context_tokens = 0
        self._ready_context_tokens = 0
        self._held_context_tokens = 0
        self.now_s = 0.0

    @property
    def num(self) -> int:
        """All that decode."""
        return self._num

    @property
    def ready(self) -> DecodeLoad:
        """Those that could go with the next micro-batch."""
        return DecodeLoad(len(self._ready), self._ready_context_tokens)

    @property
    def held(self) -> DecodeLoad:
        """Those that are kept out for now."""
        return DecodeLoad(len(self._held), self._held_context_tokens)

    @property
    def live(self) -> DecodeLoad:
        """Those that are not held: ready or in flight."""
        return DecodeLoad(
            self._num - len(self._held), self._context_tokens - self._held_context_tokens
        )

    def __contains__(self, request: Request) -> bool:
        """Whether the request is ready."""
        return request in self._ready

    def is_held(self, request: Request) -> bool:
        """Whether the request is kept out for now."""
        return request in self._held

    def first_ready(self, num_wanted: int) -> list[Request]:
        """Those that became ready first."""
        return list(islice(self._ready, num_wanted))

    def each_held(self) -> Iterator[Request]:
        """Those that were held first go first."""
        return iter(self._held)

    def join(self, request: Request) -> None:
        """The last piece of the prompt was issued."""
        self._num += 1
        self._context_tokens += len(request.token_ids)

    def count_tokens(self, num_tokens: int) -> None:
        """Tokens were added to the `token_ids` of some that are in flight."""
        self._context_tokens += num_tokens

    def make_ready(self, requests: Iterable[Request]) -> None:
        """They have come back from their micro-batch and wait for the next, in this order."""
        returned = dict.fromkeys(requests)
        self._ready |= returned
        self._ready_context_tokens += _context_of(returned)

    def issue(self, requests: Sequence[Request]) -> None:
        """They, once each, go with a micro-batch."""
        if len(requests) == len(self._ready):
            self._ready.clear()
            self._ready_context_tokens = 0
            return
        for request in requests:
            del self._ready[request]
        self._ready_context_tokens -= _context_of(requests)

    def hold(self, request: Request) -> None:
        """Keep a ready one out."""
        self.issue([request])
        self._held[request] = None
        self._held_context_tokens += len(request.token_ids)
        request.held_since_s = self.now_s

    def release(self, requests: list[Request]) -> None:
        """Let held ones go first with the next micro-batch, in this order."""
        for request in requests:
            self._drop_held(request)
            request.num_tokens_at_release = len(request.token_ids)
            self._ready_context_tokens += len(request.token_ids)
        if requests:
            self._ready = dict.fromkeys(requests) | self._ready

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
