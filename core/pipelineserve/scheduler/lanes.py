"""Waiting requests side by side: fair among clients, by position within a client."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from pipelineserve.scheduler.fairness import FairnessLedger
from pipelineserve.scheduler.requests import Request

_MAX_STALE_ENTRIES = 16


@dataclass(frozen=True, slots=True)
class _Entry:
    """One stay of a request in the lane; an entry that is no longer in `live` is stale."""

    position: float
    submit_index: int
    request: Request

    def __lt__(self, other: "_Entry") -> bool:
        return (self.position, self.submit_index) < (other.position, other.submit_index)


@dataclass(slots=True)
class _ClientQueue:
    """A heap with lazy removal: stale entries go when they reach the top or grow too many."""

    heap: list[_Entry] = field(default_factory=list)
    live: dict[str, _Entry] = field(default_factory=dict)

    def push(self, entry: _Entry) -> None:
        self.live[entry.request.request_id] = entry
        heappush(self.heap, entry)

    def remove(self, request_id: str) -> None:
        del self.live[request_id]
        if len(self.heap) > 2 * len(self.live) + _MAX_STALE_ENTRIES:
            self.heap = list(self.live.values())
            heapify(self.heap)

    def head(self) -> _Entry:
        while self.live.get(self.heap[0].request.request_id) is not self.heap[0]:
            heappop(self.heap)
        return self.heap[0]


class Lane:
    """Requests of one priority class."""

    def __init__(self, fairness: FairnessLedger) -> None:
        self._fairness = fairness
        self._clients: dict[str, _ClientQueue] = {}
        self._num_requests = 0

    def __len__(self) -> int:
        return self._num_requests

    def __iter__(self) -> Iterator[Request]:
        for queue in self._clients.values():
            for entry in queue.live.values():
                yield entry.request

    def push(self, position: float, request: Request) -> None:
        """Put a request into its place: the lowest position goes first."""
        queue = self._clients.setdefault(request.new.client_id, _ClientQueue())
        queue.push(_Entry(position, request.submit_index, request))
        self._num_requests += 1

    def head(self) -> Request:
        """The least served client's first request; there must be one."""

        def rank(client_id: str) -> tuple[float, float, int]:
            entry = self._clients[client_id].head()
            return (self._fairness.served(client_id), entry.position, entry.submit_index)

        return self._clients[min(self._clients, key=rank)].head().request

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it stands."""
        queue = self._clients[request.new.client_id]
        queue.remove(request.request_id)
        if not queue.live:
            del self._clients[request.new.client_id]
        self._num_requests -= 1
