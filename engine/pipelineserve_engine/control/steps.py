"""Step records: what was composed, and what the stages reported of it, put together."""

from dataclasses import dataclass

from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve.scheduler.session import PolicyId
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_engine.stage_messages import StepReport


@dataclass(slots=True)
class _Flight:
    """One micro-batch between composition and the last report of it."""

    record: pb.StepRecord
    sent_s: float
    # How long the pipeline was empty before it.
    pause_s: float
    step_times_s: list[float]
    bubbles_s: list[float]
    num_missing: int
    is_back: bool = False


class StepAssembler:
    """Makes one record of each micro-batch that was sent and came back while it listens.

    A stage's bubble is the time from the end of its step before to the start of this one, less the
    time in which the pipeline was empty. It is 0 where the step before is not known: the stage's
    first step after a start, and after `forget`.
    """

    def __init__(self, num_stages: int) -> None:
        self._num_stages = num_stages
        self._flights: dict[int, _Flight] = {}
        self._last_ends_s: list[float | None] = [None] * num_stages
        self._emptied_at_s: float | None = None
        self.capacity_tokens_per_s = 0.0

    @property
    def most_decodes(self) -> int:
        """The most decodes that a micro-batch in flight carries."""
        return max((flight.record.num_decodes for flight in self._flights.values()), default=0)

    def forget(self) -> None:
        """What is in flight will not be recorded, and what comes next has nothing before it."""
        self._flights.clear()
        self._last_ends_s = [None] * self._num_stages
        self._emptied_at_s = None

    def sent(self, micro_batch: MicroBatch, policy: PolicyId, now_s: float) -> None:
        """A micro-batch was composed under this policy and entered the pipeline."""
        pause_s = 0.0 if self._emptied_at_s is None else max(0.0, now_s - self._emptied_at_s)
        self._emptied_at_s = None
        self._flights[micro_batch.sequence] = _Flight(
            record=_record_of(micro_batch, policy),
            sent_s=now_s,
            pause_s=pause_s,
            step_times_s=[0.0] * self._num_stages,
            bubbles_s=[0.0] * self._num_stages,
            num_missing=self._num_stages,
        )

    def stepped(self, report: StepReport) -> pb.StepRecord | None:
        """A stage has run a micro-batch; the record if nothing is missing any more."""
        stage_index = report.stage_index
        last_end_s = self._last_ends_s[stage_index]
        self._last_ends_s[stage_index] = report.end_s
        flight = self._flights.get(report.sequence)
        if flight is None:
            return None  # sent before anyone watched
        flight.step_times_s[stage_index] = max(0.0, report.end_s - report.start_s)
        if last_end_s is not None:
            idle_s = report.start_s - last_end_s - flight.pause_s
            flight.bubbles_s[stage_index] = max(0.0, idle_s)
        flight.num_missing -= 1
        return self._taken_if_complete(flight)

    def completed(
        self, report: StepReport, now_s: float, num_in_flight: int
    ) -> pb.StepRecord | None:
        """Its tokens were taken back; reports of earlier stages may still be under way."""
        if num_in_flight == 0:
            self._emptied_at_s = now_s  # a stage's time is an estimate if its host is another one
        flight = self._flights.get(report.sequence)
        if flight is None:
            return None  # sent before anyone watched
        flight.is_back = True
        flight.record.span_s = max(0.0, now_s - flight.sent_s)
        return self._taken_if_complete(flight)

    def _taken_if_complete(self, flight: _Flight) -> pb.StepRecord | None:
        if flight.num_missing or not flight.is_back:
            return None
        record = flight.record
        record.step_time_s.extend(flight.step_times_s)
        record.bubble_s.extend(flight.bubbles_s)
        del self._flights[record.sequence]
        slowest_s = max(flight.step_times_s)
        if slowest_s > 0.0:
            prefill_tokens = record.chunk_tokens - record.num_decodes
            self.capacity_tokens_per_s = prefill_tokens / slowest_s
        return record


def _record_of(micro_batch: MicroBatch, policy: PolicyId) -> pb.StepRecord:
    """What is known when it is sent; the sums are those of `StepFeatures`."""
    features = micro_batch.features
    return pb.StepRecord(
        sequence=micro_batch.sequence,
        slot_index=micro_batch.slot_index,
        chunk_tokens=micro_batch.chunk.chunk_tokens,
        chunk_reason=micro_batch.chunk.reason.value,
        num_tokens=sum(len(piece.token_ids) for piece in micro_batch.pieces),
        num_decodes=sum(piece.is_decode for piece in micro_batch.pieces),
        decode_context_tokens=features.decode_context_tokens,
        squared_prefill_tokens=features.squared_prefill_tokens,
        past_prefill_product=features.past_prefill_product,
        policy_epoch=policy.epoch,
        policy_sequence=policy.sequence,
    )
