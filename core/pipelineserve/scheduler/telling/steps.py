"""Step records: what was composed, and what the stages reported of it, put together."""

from dataclasses import dataclass
from typing import Protocol

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.control.heard import StepSeen
from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.scheduler.session import PolicyId


class Composed(Protocol):
    """A micro-batch as records tell of it: our scheduler's, or another engine's."""

    @property
    def sequence(self) -> int:
        """Rises with each micro-batch."""
        ...

    @property
    def slot_index(self) -> int:
        """The slot that it fills."""
        ...

    @property
    def chunk(self) -> ChunkDecision:
        """The budget that it was composed with."""
        ...

    @property
    def num_tokens(self) -> int:
        """Of all its pieces."""
        ...

    @property
    def num_decodes(self) -> int:
        """How many of its pieces decode."""
        ...

    @property
    def features(self) -> StepFeatures:
        """Attention's work in it."""
        ...


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One micro-batch that all stages have run and whose tokens were taken back.

    Attributes:
        policy: that it was composed under.
        span_s: from composition to the last token taken back.
        step_time_s: computation on each stage.
        bubble_s: idle time of each stage right before it while there was work.
    """

    sequence: int
    slot_index: int
    chunk: ChunkDecision
    num_tokens: int
    num_decodes: int
    features: StepFeatures
    policy: PolicyId
    span_s: float
    step_time_s: tuple[float, ...]
    bubble_s: tuple[float, ...]

    @property
    def seen(self) -> StepSeen:
        """As a controller sees it."""
        return StepSeen(
            sequence=self.sequence,
            chunk_tokens=self.chunk.chunk_tokens,
            chunk_reason=self.chunk.reason.value,
            num_tokens=self.num_tokens,
            num_decodes=self.num_decodes,
            features=self.features,
            span_s=self.span_s,
            step_time_s=self.step_time_s,
            bubble_s=self.bubble_s,
            policy_sequence=self.policy.sequence,
        )


@dataclass(slots=True)
class _Flight:
    """One micro-batch between composition and the last report of it; lists are by stage."""

    micro_batch: Composed
    num_decodes: int
    policy: PolicyId
    sent_s: float
    # How long the pipeline was empty before it.
    pause_s: float
    step_times_s: list[float]
    bubbles_s: list[float]
    num_missing: int
    # None until its tokens were taken back.
    span_s: float | None = None


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
        return max((flight.num_decodes for flight in self._flights.values()), default=0)

    def forget(self) -> None:
        """What is in flight will not be recorded, and what comes next has nothing before it."""
        self._flights.clear()
        self._last_ends_s = [None] * self._num_stages
        self._emptied_at_s = None

    def sent(self, micro_batch: Composed, policy: PolicyId, now_s: float) -> None:
        """A micro-batch was composed under this policy and entered the pipeline."""
        pause_s = 0.0 if self._emptied_at_s is None else max(0.0, now_s - self._emptied_at_s)
        self._emptied_at_s = None
        self._flights[micro_batch.sequence] = _Flight(
            micro_batch=micro_batch,
            num_decodes=micro_batch.num_decodes,
            policy=policy,
            sent_s=now_s,
            pause_s=pause_s,
            step_times_s=[0.0] * self._num_stages,
            bubbles_s=[0.0] * self._num_stages,
            num_missing=self._num_stages,
        )

    def stepped(
        self, sequence: int, stage_index: int, start_s: float, end_s: float
    ) -> StepRecord | None:
        """A stage has run a micro-batch; the record if nothing is missing any more."""
        last_end_s = self._last_ends_s[stage_index]
        self._last_ends_s[stage_index] = end_s
        flight = self._flights.get(sequence)
        if flight is None:
            return None  # sent before anyone watched
        flight.step_times_s[stage_index] = max(0.0, end_s - start_s)
        if last_end_s is not None:
            idle_s = start_s - last_end_s - flight.pause_s
            flight.bubbles_s[stage_index] = max(0.0, idle_s)
        flight.num_missing -= 1
        return self._taken_if_complete(flight)

    def completed(self, sequence: int, now_s: float, num_in_flight: int) -> StepRecord | None:
        """Its tokens were taken back; reports of earlier stages may still be under way."""
        if num_in_flight == 0:
            self._emptied_at_s = now_s  # a stage's time is an estimate if its host is another one
        flight = self._flights.get(sequence)
        if flight is None:
            return None  # sent before anyone watched
        flight.span_s = max(0.0, now_s - flight.sent_s)
        return self._taken_if_complete(flight)

    def _taken_if_complete(self, flight: _Flight) -> StepRecord | None:
        if flight.num_missing or flight.span_s is None:
            return None
        micro_batch = flight.micro_batch
        del self._flights[micro_batch.sequence]
        slowest_s = max(flight.step_times_s)
        if slowest_s > 0.0:
            prefill_tokens = micro_batch.chunk.chunk_tokens - flight.num_decodes
            self.capacity_tokens_per_s = prefill_tokens / slowest_s
        return StepRecord(
            sequence=micro_batch.sequence,
            slot_index=micro_batch.slot_index,
            chunk=micro_batch.chunk,
            num_tokens=micro_batch.num_tokens,
            num_decodes=flight.num_decodes,
            features=micro_batch.features,
            policy=flight.policy,
            span_s=flight.span_s,
            step_time_s=tuple(flight.step_times_s),
            bubble_s=tuple(flight.bubbles_s),
        )
