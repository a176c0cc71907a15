"""Requests that decode: in flight, ready or held, with the sums over them that policies see."""

from collections.abc import Iterator

from pipelineserve.policy.views import DecodeLoad
from pipelineserve.scheduler.requests import Request


class DecodePool:
    """Every decoding request once; sums are kept, so that a view costs no walk.

    Attributes:
        now_s: the time of the latest micro-batch; holds that end in between end then.
    """

    def __init__(self) -> None:
        # In the order in which they became ready.
        self._ready: dict[str, Request] = {}
        # In the order in which they were held.
        self._held: dict[str, Request] = {}
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
        return self._ready.get(request.request_id) is request

    def is_held(self, request: Request) -> bool:
        """Whether the request is kept out for now."""
        return self._held.get(request.request_id) is request

    def first_ready(self, num_wanted: int) -> list[Request]:
        """Those that became ready first."""
        return [
            request for request, _ in zip(self._ready.values(), range(num_wanted), strict=False)
        ]

    def each_held(self) -> Iterator[Request]:
        """Those that were held first go first."""
        return iter(self._held.values())

    def join(self, request: Request) -> None:
        """The last piece of the prompt was issued."""
        self._num += 1
        self._context_tokens += len(request.token_ids)

    def count_token(self) -> None:
        """A token was added to the `token_ids` of one that is in flight."""
        self._context_tokens += 1

    def make_ready(self, request: Request) -> None:
        """It has come back from its micro-batch and waits for the next."""
        self._ready[request.request_id] = request
        self._ready_context_tokens += len(request.token_ids)

    def issue(self, request: Request) -> None:
        """It goes with a micro-batch."""
        del self._ready[request.request_id]
        self._ready_context_tokens -= len(request.token_ids)

    def hold(self, request: Request) -> None:
        """Keep a ready one out."""
        self.issue(request)
        self._held[request.request_id] = request
        self._held_context_tokens += len(request.token_ids)
        request.held_since_s = self.now_s

    def release(self, requests: list[Request]) -> None:
        """Let held ones go first with the next micro-batch, in this order."""
        for request in requests:
            self._drop_held(request)
            request.num_tokens_at_release = len(request.token_ids)
            self._ready_context_tokens += len(request.token_ids)
        if requests:
            released = {request.request_id: request for request in requests}
            self._ready = released | self._ready

    def leave(self, request: Request) -> None:
        """It ended or goes back to the queue, wherever it stands."""
        self._num -= 1
        self._context_tokens -= len(request.token_ids)
        if request in self:
            self.issue(request)
        elif self.is_held(request):
            self._drop_held(request)

    def _drop_held(self, request: Request) -> None:
        del self._held[request.request_id]
        self._held_context_tokens -= len(request.token_ids)
        request.held_s = request.held_for_s(self.now_s)
        request.held_since_s = None
