"""What one watcher has still to be told: bounded, and never in the engine's way."""

import threading
from collections import deque
from dataclasses import dataclass

from pipelineserve.wire.v1 import scheduler_pb2 as pb


@dataclass(frozen=True, slots=True)
class _Pending:
    records: pb.Records
    num_records: int

    @property
    def weight(self) -> int:
        """What it counts towards the bound; a snapshot alone is not free."""
        return self.num_records + 1


class Watcher:
    """A queue between the engine's thread, which never waits, and the watcher's own.

    When it is full the oldest batch goes; how many records that were, the next event says.

    Args:
        name: of the controller, for logs.
        max_records: bound of the queue, each batch's snapshot counted as one more; a batch alone
            may be larger.
    """

    def __init__(self, name: str, max_records: int) -> None:
        self.name = name
        self._max_records = max_records
        self._pending: deque[_Pending] = deque()
        self._weight = 0
        self._num_lost = 0
        self._is_closed = False
        self._news = threading.Condition()

    def put(self, records: pb.Records) -> int:
        """Queue a batch; return how many records were lost for it."""
        newest = _Pending(records, len(records.steps) + len(records.requests))
        num_lost = 0
        with self._news:
            self._pending.append(newest)
            self._weight += newest.weight
            while self._weight > self._max_records and len(self._pending) > 1:
                oldest = self._pending.popleft()
                self._weight -= oldest.weight
                num_lost += oldest.num_records
            self._num_lost += num_lost
            self._news.notify()
        return num_lost

    def close(self) -> None:
        """End `next_event`; from any thread."""
        with self._news:
            self._is_closed = True
            self._news.notify()

    def next_event(self) -> pb.WatchEvent | None:
        """Wait for the next event; None once it is closed."""
        with self._news:
            self._news.wait_for(lambda: self._pending or self._is_closed)
            if self._is_closed:
                return None
            pending = self._pending.popleft()
            self._weight -= pending.weight
            event = pb.WatchEvent(records=pending.records)
            event.records.num_lost = self._num_lost
            return event
