"""What happens in the engine as batches of records for those who watch."""

from collections.abc import Callable

from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve.scheduler.requests import RequestRecord
from pipelineserve.scheduler.telling.collecting import SNAPSHOT_PERIOD_S, Collector
from pipelineserve_engine.control.messages import records_message
from pipelineserve_engine.control.watchers import Watcher
from pipelineserve_engine.observation import Listener
from pipelineserve_engine.stage_messages import StepReport


class Recorder(Listener):
    """Collects records while there is a watcher; without one each call is a look at a flag.

    Lives in the engine's thread, but for the watchers' queues. All watchers get the same batches.

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

    def on_sent(self, micro_batch: MicroBatch, now_s: float) -> None:
        """See `Listener.on_sent`."""
        self._collector.sent(micro_batch, now_s)

    def on_step(self, report: StepReport) -> None:
        """See `Listener.on_step`."""
        self._collector.stepped(report.sequence, report.stage_index, report.start_s, report.end_s)

    def on_completed(self, report: StepReport, now_s: float, num_in_flight: int) -> None:
        """See `Listener.on_completed`."""
        self._collector.completed(report.sequence, now_s, num_in_flight)

    def on_recovery(self) -> None:
        """See `Listener.on_recovery`."""
        self._collector.stages_lost()

    def on_rejected(self, num_prompt_tokens: int, now_s: float) -> None:
        """See `Listener.on_rejected`."""
        self._collector.rejected(num_prompt_tokens, now_s)

    def on_ended(self, record: RequestRecord) -> None:
        """See `Listener.on_ended`."""
        self._collector.ended(record)

    def _flush(self, now_s: float) -> None:
        records = records_message(self._collector.take(now_s))
        for watcher in self._watchers:
            self._count_lost(watcher.put(records))
