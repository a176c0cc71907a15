"""Collects what those who watch are told, and says when the next batch of it is due."""

from dataclasses import dataclass
from math import inf

from pipelineserve.policy.control.heard import Ending, RequestSeen, Standing, Told
from pipelineserve.scheduler.requests import RequestRecord
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.scheduler.telling.live_requests import LiveRequests
from pipelineserve.scheduler.telling.standings import Standable, standing_of
from pipelineserve.scheduler.telling.steps import Composed, StepAssembler, StepRecord

FLUSH_PERIOD_S = 0.02
FLUSH_RECORDS = 64
# How things stand is told this often without any record: silence means that the engine is stuck.
SNAPSHOT_PERIOD_S = 0.25


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A request that was not accepted."""

    num_prompt_tokens: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Batch:
    """What is told at once, at the scheduler's time `now_s`."""

    now_s: float
    steps: tuple[StepRecord, ...]
    requests: tuple[RequestRecord | RejectedRecord, ...]
    standing: Standing

    @property
    def num_records(self) -> int:
        """Steps and requests."""
        return len(self.steps) + len(self.requests)

    def told(self, num_lost: int) -> Told:
        """As a controller hears it; `num_lost` records of the session were lost on the way."""
        return Told(
            steps=tuple(step.seen for step in self.steps),
            requests=tuple(map(request_seen, self.requests)),
            standing=self.standing,
            num_lost=num_lost,
            num_refused=0,
        )


class Collector:
    """Collects while somebody watches; otherwise each call is a look at a flag.

    Args:
        num_stages: of the pipeline.
        scheduler: whose standing is told.
        session: says under which policy a micro-batch was composed.
        live_requests: hears of all requests by itself, at any time.
    """

    def __init__(
        self,
        num_stages: int,
        scheduler: Standable,
        session: ControlSession,
        live_requests: LiveRequests,
    ) -> None:
        self._scheduler = scheduler
        self._session = session
        self._live_requests = live_requests
        self._assembler = StepAssembler(num_stages)
        self._is_watched = False
        self._steps: list[StepRecord] = []
        self._requests: list[RequestRecord | RejectedRecord] = []
        self._last_batch_s = 0.0

    @property
    def is_watched(self) -> bool:
        """Whether anything is collected."""
        return self._is_watched

    def begin(self, now_s: float) -> None:
        """Somebody watches from now on."""
        self._is_watched = True
        self._last_batch_s = now_s

    def end(self) -> None:
        """Nobody watches any more; all that was begun is forgotten."""
        self._is_watched = False
        self._steps, self._requests = [], []
        self._assembler.forget()

    def due_in_s(self, now_s: float) -> float:
        """Seconds until a batch must go, 0 or less if it must now; infinite if nobody watches."""
        if not self._is_watched:
            return inf
        num_records = len(self._steps) + len(self._requests)
        if num_records >= FLUSH_RECORDS:
            return 0.0
        period_s = FLUSH_PERIOD_S if num_records else SNAPSHOT_PERIOD_S
        return self._last_batch_s + period_s - now_s

    def take(self, now_s: float) -> Batch:
        """All that was collected since the last call, and how things stand."""
        standing = standing_of(
            self._scheduler, self._session, self._live_requests, self._assembler, now_s
        )
        batch = Batch(now_s, tuple(self._steps), tuple(self._requests), standing)
        self._steps, self._requests = [], []
        self._last_batch_s = now_s
        return batch

    def sent(self, micro_batch: Composed, now_s: float) -> None:
        """A micro-batch was composed and entered the pipeline."""
        if self._is_watched:
            self._assembler.sent(micro_batch, self._session.in_force, now_s)

    def stepped(self, sequence: int, stage_index: int, start_s: float, end_s: float) -> None:
        """A stage has run a micro-batch."""
        if self._is_watched:
            self._keep(self._assembler.stepped(sequence, stage_index, start_s, end_s))

    def completed(self, sequence: int, now_s: float, num_in_flight: int) -> None:
        """Its tokens were taken back; so many others are in flight."""
        if self._is_watched:
            self._keep(self._assembler.completed(sequence, now_s, num_in_flight))

    def stages_lost(self) -> None:
        """What is in flight never comes back, and no stage's step has one before it."""
        self._assembler.forget()

    def rejected(self, num_prompt_tokens: int, now_s: float) -> None:
        """A request was not accepted."""
        if self._is_watched:
            self._requests.append(RejectedRecord(num_prompt_tokens, now_s))

    def ended(self, record: RequestRecord) -> None:
        """A request has ended, however."""
        if self._is_watched:
            self._requests.append(record)

    def _keep(self, record: StepRecord | None) -> None:
        if record is not None:
            self._steps.append(record)


def request_seen(record: RequestRecord | RejectedRecord) -> RequestSeen:
    """A request that has ended as a controller sees it."""
    match record:
        case RejectedRecord(num_prompt_tokens=num_prompt_tokens):
            return RequestSeen(Ending.REJECTED, num_prompt_tokens, 0, None, None, 0.0, 0.0)
        case RequestRecord():
            return RequestSeen(
                ending=Ending(record.finish.value),
                num_prompt_tokens=record.num_prompt_tokens,
                num_output_tokens=record.num_output_tokens,
                ttft_s=record.ttft_s,
                tpot_s=record.tpot_s,
                held_s=record.held_s,
                longest_gap_s=record.longest_gap_s,
            )
