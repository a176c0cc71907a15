"""The waiting queue: priority classes, fair among clients, ordered by a policy within a client.

Under `Triage` a class has two lanes: one for those who can be in time, and one for those who are
late. Clients have fair turns within each.
"""

from collections.abc import Iterator

from pipelineserve.policy.chunking import ChunkPolicy
from pipelineserve.policy.ordering import QueueOrder
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.triage import Triage
from pipelineserve.policy.views import LoadView, WaitingRequestView
from pipelineserve.scheduler.fairness import FairnessLedger
from pipelineserve.scheduler.lanes import Lane
from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve.scheduler.requests import Request
from pipelineserve.scheduler.triaging import Triaging


class WaitingQueue:
    """Requests that wait to start; `head` is the one that must start next.

    Attributes:
        num_new: those of them that have never run.
        num_tokens: tokens that all of them still have to compute. What is kept in host memory is
            not among them; it must not change while a request waits.
        squared_tokens: the sum of each one's tokens squared.
        triaging: who is late; None under an order that asks for no such thing.
    """

    def __init__(self, order: QueueOrder, fairness: FairnessLedger) -> None:
        self._order = order
        self._fairness = fairness
        self._classes: dict[int, Lane] = {}
        self._late_classes: dict[int, Lane] = {}
        self._late_ids: set[str] = set()
        self._num_requests = 0
        self.num_new = 0
        self.num_tokens = 0
        self.squared_tokens = 0
        self.triaging = Triaging(order) if isinstance(order, Triage) else None

    def __len__(self) -> int:
        return self._num_requests

    def __iter__(self) -> Iterator[Request]:
        for lanes in (self._classes, self._late_classes):
            for lane in lanes.values():
                yield from lane

    def push(self, request: Request) -> None:
        """Put a new or preempted request into its place."""
        remaining = request.num_remaining
        self._lane_push(self._classes, request)
        if self.triaging is not None:
            self.triaging.join(request)
        self._num_requests += 1
        self.num_new += request.num_requeues == 0
        self.num_tokens += remaining
        self.squared_tokens += remaining * remaining

    def reorder(self, order: QueueOrder) -> None:
        """Give every waiting request its place under another order."""
        if order == self._order:
            return
        waiting = sorted(self, key=lambda request: (request.arrival_s, request.submit_index))
        for request in waiting:
            self.remove(request)
        self._order = order
        if not isinstance(order, Triage):
            self.triaging = None
        elif self.triaging is None:
            self.triaging = Triaging(order)
        else:
            self.triaging.policy = order
        for request in waiting:
            self.push(request)

    def head(self) -> Request | None:
        """The highest class's least served client's first request; None when empty."""
        if self.triaging is not None and self._late_ids:
            return self._triaged_head(self.triaging)
        if not self._classes:
            return None
        return self._classes[max(self._classes)].head()

    def remove(self, request: Request) -> None:
        """Take a waiting request out, wherever it stands."""
        if request.request_id in self._late_ids:
            self._late_ids.remove(request.request_id)
            self._lane_remove(self._late_classes, request)
        else:
            self._lane_remove(self._classes, request)
        if self.triaging is not None:
            self.triaging.leave(request)
        self._num_requests -= 1
        self.num_new -= request.num_requeues == 0
        self.num_tokens -= request.num_remaining
        self.squared_tokens -= request.num_remaining * request.num_remaining

    def start(self, request: Request) -> None:
        """Take a waiting request out because it starts."""
        if self.triaging is not None:
            self.triaging.charge(request, is_late=request.request_id in self._late_ids)
        self.remove(request)

    def sort_out(self, view: LoadView, chunking: ChunkPolicy) -> None:
        """Move requests of the highest class between the lanes, under `Triage`.

        Args:
            view: the micro-batch that is being composed.
            chunking: tells what prefill can be promised, if it can; else the measured pace does.
        """
        triaging = self.triaging
        if triaging is None or not self._num_requests:
            return
        pace = triaging.pace.tokens_per_s
        if isinstance(chunking, Predictive):
            pace = chunking.promised_tokens_per_s(view)
        priority = self._highest()
        late, in_time = triaging.sort_out(priority, view.now_s, view.started.tokens, pace)
        for request in late:
            if request.request_id not in self._late_ids:
                self._lane_remove(self._classes, request)
                self._late_ids.add(request.request_id)
                self._lane_push(self._late_classes, request)
        for request in in_time:
            if request.request_id in self._late_ids:
                self._lane_remove(self._late_classes, request)
                self._late_ids.remove(request.request_id)
                self._lane_push(self._classes, request)

    def note_launch(self, micro_batch: MicroBatch, now_s: float, *, leaves_started: bool) -> None:
        """A micro-batch goes out; `leaves_started`: started prompts have pieces left."""
        if self.triaging is None:
            return
        prefill = micro_batch.num_tokens - micro_batch.num_decodes
        leaves_prompts = leaves_started or self._num_requests > 0
        self.triaging.pace.note_launch(prefill, now_s, leaves_prompts=leaves_prompts)

    def note_return(self, span_s: float) -> None:
        """A micro-batch came back after so long."""
        if self.triaging is not None:
            self.triaging.pace.note_return(span_s)

    def forget_in_flight(self) -> None:
        """What is in flight never comes back."""
        if self.triaging is not None:
            self.triaging.pace.forget_in_flight()

    def _triaged_head(self, triaging: Triaging) -> Request:
        priority = self._highest()
        num_in_time = len(self._classes.get(priority, ()))
        num_late = len(self._late_classes.get(priority, ()))
        is_late_turn = triaging.is_late_turn(priority, num_in_time, num_late)
        lanes = self._late_classes if is_late_turn else self._classes
        return lanes[priority].head()

    def _highest(self) -> int:
        """The highest priority of those who wait; there must be one."""
        return max((*self._classes, *self._late_classes))

    def _lane_push(self, lanes: dict[int, Lane], request: Request) -> None:
        view = WaitingRequestView(request.arrival_s, request.num_remaining)
        lane = lanes.get(request.new.priority)
        if lane is None:
            lane = lanes[request.new.priority] = Lane(self._fairness)
        lane.push(self._order.decide(view).position, request)

    def _lane_remove(self, lanes: dict[int, Lane], request: Request) -> None:
        lane = lanes[request.new.priority]
        lane.remove(request)
        if not lane:
            del lanes[request.new.priority]
