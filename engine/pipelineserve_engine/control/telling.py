"""Batches of records to those who watch, whichever engine they are of."""

from collections.abc import Callable

from pipelineserve.scheduler.telling.collecting import SNAPSHOT_PERIOD_S, Collector
from pipelineserve_engine.control.messages import records_message
from pipelineserve_engine.control.watchers import Watcher


class Teller:
    """Tells all watchers the same batches, and nothing is collected without one.

    Lives in the engine's thread, but for the watchers' queues.

    Args:
        collector: makes records of what happens.
        count_lost: told of records that a slow watcher loses.
    """

    def __init__(self, collector: Collector, count_lost: Callable[[int], None]) -> None:
        self._collector = collector
        self._count_lost = count_lost
        self._watchers: list[Watcher] = []

    @property
    def num_watchers(self) -> int:
        """How many are told."""
        return len(self._watchers)

    def add(self, watcher: Watcher, now_s: float) -> None:
        """Tell this one from now on."""
        if self._watchers:
            self._flush(now_s)  # what happened before is not the new one's
        else:
            self._collector.begin(now_s)
        self._watchers.append(watcher)

    def remove(self, watcher: Watcher) -> None:
        """Tell this one no more; without any watcher all that was begun is forgotten."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)
        if not self._watchers:
            self._collector.end()

    def turn(self, now_s: float) -> float:
        """Send what is due; return the seconds until more is, infinite if nobody watches."""
        due_in_s = self._collector.due_in_s(now_s)
        if due_in_s > 0.0:
            return due_in_s
        self._flush(now_s)
        return SNAPSHOT_PERIOD_S

    def _flush(self, now_s: float) -> None:
        records = records_message(self._collector.take(now_s))
        for watcher in self._watchers:
            self._count_lost(watcher.put(records))
