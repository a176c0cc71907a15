"""What happens in another engine, put into the book and told to those who watch."""

from dataclasses import dataclass
from typing import NamedTuple

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve.scheduler.telling.collecting import Collector
from pipelineserve.scheduler.telling.live_requests import LiveRequests
from pipelineserve_engine.addon.mirror import SchedulerMirror
from pipelineserve_engine.addon.tracked_requests import RequestBook


@dataclass(frozen=True, slots=True)
class Composition:
    """One of the engine's micro-batches as records tell of it; its turn is its sequence."""

    sequence: int
    slot_index: int
    chunk: ChunkDecision
    num_tokens: int
    num_decodes: int
    features: StepFeatures


class StageReport(NamedTuple):
    """A stage has run a micro-batch.

    Attributes:
        stage_index: which one.
        turn: the micro-batch's.
        num_tokens: that the stage computed; all stages agree on it, or they run apart.
        chunk_tokens: the budget in force on the stage at that turn; likewise.
        start_s: on the stage's own clock, of which only differences count.
        end_s: likewise.
    """

    stage_index: int
    turn: int
    num_tokens: int
    chunk_tokens: int
    start_s: float
    end_s: float


class Ledger:
    """Lives in the thread that schedules.

    Args:
        mirror: the engine's scheduler as policies see it.
        book: its requests.
        live: those that live, as standings need them.
        collector: makes records.
    """

    def __init__(
        self,
        mirror: SchedulerMirror,
        book: RequestBook,
        live: LiveRequests,
        collector: Collector,
    ) -> None:
        self._mirror = mirror
        self._book = book
        self._live = live
        self._collector = collector
        # What each stage must report of a turn: tokens, chunk, and how many reports are missing.
        self._expected: dict[int, tuple[int, int, int]] = {}

    @property
    def oldest_unreported_turn(self) -> int | None:
        """The first turn of which a stage has not told anything yet; None if all have."""
        return next(iter(self._expected), None)

    def accept(self, request_id: str, num_prompt_tokens: int, now_s: float) -> None:
        """A request has entered the queue, for the first time or again."""
        if self._book.get(request_id) is not None:
            self._book.requeue(request_id)
            return
        self._mirror.accept(request_id, num_prompt_tokens, now_s)
        self._live.accept(request_id, now_s)

    def compose(self, composition: Composition, now_s: float) -> None:
        """A micro-batch is about to be launched."""
        self._expected[composition.sequence] = (
            composition.num_tokens,
            composition.chunk.chunk_tokens,
            self._mirror.num_stages,
        )
        self._collector.sent(composition, now_s)

    def report(self, report: StageReport) -> None:
        """A stage has run a micro-batch.

        Raises:
            RuntimeError: the stage ran something else than was composed.
        """
        expected = self._expected.get(report.turn)
        if expected is None:
            return  # of a turn before anything was decided
        num_tokens, chunk_tokens, num_missing = expected
        if (report.num_tokens, report.chunk_tokens) != (num_tokens, chunk_tokens):
            raise RuntimeError(
                f"turn {report.turn}: composed were {num_tokens} tokens with chunk {chunk_tokens}, "
                f"stage {report.stage_index} ran {report.num_tokens} with {report.chunk_tokens}"
            )
        if num_missing == 1:
            del self._expected[report.turn]
        else:
            self._expected[report.turn] = (num_tokens, chunk_tokens, num_missing - 1)
        self._collector.stepped(report.turn, report.stage_index, report.start_s, report.end_s)

    def advance(self, request_id: str, num_output_tokens: int, now_s: float) -> None:
        """A request has so many output tokens now."""
        num_new = self._book.advance(request_id, num_output_tokens, now_s)
        if num_new:
            self._live.advance(request_id, num_new, now_s)

    def end(self, request_id: str, finish: FinishReason, now_s: float) -> None:
        """A request is over."""
        record = self._book.end(request_id, finish, now_s)
        if record is not None:
            self._live.end(request_id)
            self._collector.ended(record)

    def complete(self, turn: int, now_s: float, num_in_flight: int) -> None:
        """A micro-batch's tokens are with its requests; so many others are in flight."""
        self._collector.completed(turn, now_s, num_in_flight)
