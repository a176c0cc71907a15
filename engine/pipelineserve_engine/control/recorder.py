"""What happens in the engine as batches of records for those who watch."""

from collections.abc import Callable
from math import inf

from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve.scheduler.requests import FinishReason, RequestRecord
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_engine.control.snapshots import SnapshotSource
from pipelineserve_engine.control.steps import StepAssembler
from pipelineserve_engine.control.watchers import Watcher
from pipelineserve_engine.observation import Listener
from pipelineserve_engine.stage_messages import StepReport

FLUSH_PERIOD_S = 0.02
FLUSH_RECORDS = 64
# Without any record a snapshot goes out this often: silence means that the engine stands still.
SNAPSHOT_PERIOD_S = 0.25

_OUTCOMES = {
    FinishReason.STOP: pb.OUTCOME_STOP,
    FinishReason.LENGTH: pb.OUTCOME_LENGTH,
    FinishReason.CANCELLED: pb.OUTCOME_CANCELLED,
    FinishReason.ERROR: pb.OUTCOME_ERROR,
}


class Recorder(Listener):
    """Collects records while there is a watcher; without one each call is a look at a flag.

    Lives in the engine's thread, but for the watchers' queues. All watchers get the same batches.

    Args:
        num_stages: of the pipeline.
        session: says under which policy a micro-batch was composed.
        snapshots: how things stand when a batch is sent.
        count_lost: told of records that a slow watcher loses.
    """

    def __init__(
        self,
        num_stages: int,
        session: ControlSession,
        snapshots: SnapshotSource,
        count_lost: Callable[[int], None],
    ) -> None:
        self._count_lost = count_lost
        self._session = session
        self._snapshots = snapshots
        self._assembler = StepAssembler(num_stages)
        self._watchers: list[Watcher] = []
        self._is_watched = False
        self._steps: list[pb.StepRecord] = []
        self._requests: list[pb.RequestRecord] = []
        self._last_flush_s = 0.0

    @property
    def num_watchers(self) -> int:
        """How many are told."""
        return len(self._watchers)

    def add(self, watcher: Watcher, now_s: float) -> None:
        """Tell this one from now on."""
        if self._is_watched:
            self._flush(now_s)  # what happened before is not the new one's
        else:
            self._last_flush_s = now_s
        self._watchers.append(watcher)
        self._is_watched = True

    def remove(self, watcher: Watcher) -> None:
        """Tell this one no more; without any watcher all that was begun is forgotten."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)
        if not self._watchers and self._is_watched:
            self._is_watched = False
            self._steps, self._requests = [], []
            self._assembler.forget()

    def turn(self, now_s: float) -> float:
        """Send what is due; return the seconds until more is, infinite if nobody watches."""
        if not self._is_watched:
            return inf
        num_records = len(self._steps) + len(self._requests)
        due_s = self._last_flush_s + (FLUSH_PERIOD_S if num_records else SNAPSHOT_PERIOD_S)
        if num_records < FLUSH_RECORDS and now_s < due_s:
            return due_s - now_s
        self._flush(now_s)
        return SNAPSHOT_PERIOD_S

    def on_sent(self, micro_batch: MicroBatch, now_s: float) -> None:
        """See `Listener.on_sent`."""
        if self._is_watched:
            self._assembler.sent(micro_batch, self._session.sequence_in_force, now_s)

    def on_step(self, report: StepReport) -> None:
        """See `Listener.on_step`."""
        if self._is_watched:
            self._keep(self._assembler.stepped(report))

    def on_completed(self, report: StepReport, now_s: float, num_in_flight: int) -> None:
        """See `Listener.on_completed`."""
        if self._is_watched:
            self._keep(self._assembler.completed(report, now_s, num_in_flight))

    def on_recovery(self) -> None:
        """What is in flight never comes back, and no stage's step has one before it."""
        self._assembler.forget()

    def on_rejected(self, num_prompt_tokens: int, now_s: float) -> None:
        """See `Listener.on_rejected`."""
        if self._is_watched:
            rejected = pb.RequestRecord(
                outcome=pb.OUTCOME_REJECTED,
                arrival_s=now_s,
                end_s=now_s,
                num_prompt_tokens=num_prompt_tokens,
            )
            self._requests.append(rejected)

    def on_ended(self, record: RequestRecord) -> None:
        """See `Listener.on_ended`."""
        if self._is_watched:
            self._requests.append(request_record(record))

    def _keep(self, record: pb.StepRecord | None) -> None:
        if record is not None:
            self._steps.append(record)

    def _flush(self, now_s: float) -> None:
        records = pb.Records(
            now_s=now_s,
            steps=self._steps,
            requests=self._requests,
            snapshot=self._snapshots.at(now_s, self._assembler),
        )
        self._steps, self._requests = [], []
        self._last_flush_s = now_s
        for watcher in self._watchers:
            self._count_lost(watcher.put(records))


def request_record(record: RequestRecord) -> pb.RequestRecord:
    """The message of a request that has ended; what does not apply stays unset."""
    message = pb.RequestRecord(
        outcome=_OUTCOMES[record.finish],
        arrival_s=record.arrival_s,
        end_s=record.end_s,
        num_prompt_tokens=record.num_prompt_tokens,
        num_output_tokens=record.num_output_tokens,
        tpot_s=record.tpot_s,
        held_s=record.held_s,
        longest_gap_s=record.longest_gap_s,
        num_requeues=record.num_requeues,
    )
    if record.first_issue_s is not None:
        message.queue_wait_s = record.first_issue_s - record.arrival_s
    if record.first_token_s is not None:
        message.ttft_s = record.first_token_s - record.arrival_s
    return message
