"""The waiting queue: priority classes, fair among clients, ordered by a policy within a client."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from pipelineserve.policy.ordering import QueueOrder
from pipelineserve.policy.views import WaitingRequestView
from pipelineserve.scheduler.fairness import FairnessLedger
from pipelineserve.scheduler.requests import Request

_MAX_STALE_ENTRIES = 16


@dataclass(frozen=True, slots=True)
class _Entry:
    """One stay of a request in the queue; an entry that is no longer in `live` is stale."""

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


class WaitingQueue:
    """Requests that wait to start; `head` is the one that must start next.

    Attributes:
        num_new: those of them that have never run.
        num_tokens: tokens that all of them still have to compute. What is kept in host memory is
            not among them; it must not change while a request waits.
        squared_tokens: the sum of each one's tokens squared.
    """

    def __init__(self, order: QueueOrder, fairness: FairnessLedger) -> None:
        self._order = order
        self._fairness = fairness
        self._classes: dict[int, dict[str, _ClientQueue]] = {}
        self._num_requests = 0
        self.num_new = 0
        self.num_tokens = 0
        self.squared_tokens = 0

    def __len__(self) -> int:
        return self._num_requests

    def __iter__(self) -> Iterator[Request]:
        for clients in self._classes.values():
            for queue in clients.values():
                for entry in queue.live.values():
                    yield entry.request

    def push(self, request: Request) -> None:
        """Put a new or preempted request into its place."""
        remaining = request.num_remaining
        view = WaitingRequestView(arrival_s=request.arrival_s, remaining_tokens=remaining)
        position = self._order.decide(view).position
        clients = self._classes.setdefault(request.new.priority, {})
        queue = clients.setdefault(request.new.client_id, _ClientQueue())
        queue.push(_Entry(position, request.submit_index, request))
        self._num_requests += 1
        self.num_new += request.num_requeues == 0
        self.num_tokens += remaining
        self.squared_tokens += remaining * remaining

    def reorder(self, order: QueueOrder) -> None:
        """Give every waiting request its place under another order."""
        if order == self._order:
            return
        waiting = list(self)
        for request in waiting:
            self.remove(request)
        self._order = order
        for request in waiting:
            self.push(request)

    def head(self) -> Request | None:
        """The highest class's least served client's first request; None when empty."""
        if not self._classes:
            return None
        clients = self._classes[max(self._classes)]

        def rank(client_id: str) -> tuple[float, float, int]:
            entry = clients[client_id].head()
            return (self._fairness.served(client_id), entry.position, entry.submit_index)

        return clients[min(clients, key=rank)].head().request

    def remove(self, request: Request) -> None:
        """Take a waiting request out, wherever it stands."""
        clients = self._classes[request.new.priority]
        queue = clients[request.new.client_id]
        queue.remove(request.request_id)
        if not queue.live:
            del clients[request.new.client_id]
        if not clients:
            del self._classes[request.new.priority]
        self._num_requests -= 1
        self.num_new -= request.num_requeues == 0
        self.num_tokens -= request.num_remaining
        self.squared_tokens -= request.num_remaining * request.num_remaining
