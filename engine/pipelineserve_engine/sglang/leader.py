"""Stage 0's side: decides for all ranks, by policies that controllers lend, and tells what happens.

Only here are policies, demand and leases evaluated. What comes of it is a number and two lists of
requests, which travel to the other ranks with SGLang's own requests, so that all obey at one turn.
A mistake of ours must not end the server: after one, nothing is decided any more, nobody stays
held, and the static chunk holds.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve.scheduler.telling.collecting import Collector
from pipelineserve.scheduler.telling.live_requests import LiveRequests
from pipelineserve_engine.control.desk import ControlDesk
from pipelineserve_engine.control.questions import Questions
from pipelineserve_engine.sglang import reading
from pipelineserve_engine.sglang.batches import has_penalties
from pipelineserve_engine.sglang.mirror import SchedulerMirror, TurnFacts
from pipelineserve_engine.sglang.orders import StageReport, TurnOrder
from pipelineserve_engine.sglang.stage import StageSide
from pipelineserve_engine.sglang.tracked_requests import RequestBook

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Composition:
    """One of SGLang's micro-batches as records tell of it; its turn is its sequence."""

    sequence: int
    slot_index: int
    chunk: ChunkDecision
    num_tokens: int
    num_decodes: int
    features: StepFeatures


@dataclass(frozen=True, slots=True)
class LeaderParts:
    """What the leader works with; all of it lives in the scheduling thread.

    Attributes:
        stage: this rank's own side.
        mirror: SGLang's scheduler as policies see it.
        book: its requests.
        live: those that live, as standings need them.
        collector: makes records.
        desk: takes policies in and tells records.
        questions: what the control server's threads ask the desk.
    """

    stage: StageSide
    mirror: SchedulerMirror
    book: RequestBook
    live: LiveRequests
    collector: Collector
    desk: ControlDesk
    questions: Questions


class Leader:
    """Called by the hooks of stage 0's first rank, in the scheduling thread.

    Args:
        parts: what it works with.
        static_chunk_tokens: what holds after a mistake.
        count_held: told how many are held, when that changes.
        on_mistake: told of a mistake, once.
    """

    def __init__(
        self,
        parts: LeaderParts,
        static_chunk_tokens: int,
        count_held: Callable[[int], None],
        on_mistake: Callable[[str], None],
    ) -> None:
        self._parts = parts
        self._static_chunk_tokens = static_chunk_tokens
        self._count_held = count_held
        self._on_mistake = on_mistake
        self._has_failed = False
        self._ordered_chunk_tokens = 0
        self._chunk: ChunkDecision | None = None
        # By slot: the turn of its micro-batch in flight, and the batch itself.
        self._flights: dict[int, tuple[int, Any]] = {}
        # What each stage must report of a turn: tokens, chunk, and how many reports are missing.
        self._expected: dict[int, tuple[int, int, int]] = {}

    def order(
        self, scheduler: Any, received: Sequence[Any], reports: Sequence[StageReport], now_s: float
    ) -> TurnOrder | None:
        """The order for the turn that begins, None if nothing changes.

        Args:
            scheduler: SGLang's.
            received: what its server has sent for this turn.
            reports: what the stages have reported since the turn before.
            now_s: the time.
        """
        if not self._has_failed:
            try:
                return self._decide(scheduler, received, reports, now_s)
            except Exception as error:  # noqa: BLE001 - the server must go on, whatever it is
                self._fail(error)
        return self._harmless_order()

    def on_accepted(self, request: Any, now_s: float) -> None:
        """A request has entered the queue, for the first time or again."""
        self._safely(lambda: self._note_accepted(request, now_s))

    def on_composed(self, batch: Any, now_s: float) -> None:
        """A micro-batch of this turn is about to be launched."""
        self._safely(lambda: self._note_composed(batch, now_s))

    def on_completed(
        self, scheduler: Any, batch: Any, requests: Sequence[Any], now_s: float
    ) -> None:
        """A micro-batch has come back, and its tokens are with its requests."""
        self._safely(lambda: self._note_completed(scheduler, batch, requests, now_s))

    def on_aborted(self, request: Any, now_s: float) -> None:
        """A request has ended outside of any micro-batch."""
        self._safely(lambda: self._end(request.rid, FinishReason.CANCELLED, now_s))

    def _safely(self, note: Callable[[], None]) -> None:
        if self._has_failed:
            return
        try:
            note()
        except Exception as error:  # noqa: BLE001 - as in `order`
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        logger.error("the add-on made a mistake and is inactive from now on", exc_info=error)
        self._parts.questions.close()
        self._on_mistake("the add-on made a mistake; SGLang's log has it")

    def _harmless_order(self) -> TurnOrder | None:
        stage = self._parts.stage
        released = tuple(request.rid for request in stage.held_requests)
        if not released and stage.chunk_tokens == self._static_chunk_tokens:
            return None
        return TurnOrder(stage.turn + 1, self._static_chunk_tokens, released=released)

    def _decide(
        self, scheduler: Any, received: Sequence[Any], reports: Sequence[StageReport], now_s: float
    ) -> TurnOrder | None:
        parts = self._parts
        for report in reports:
            self._note_report(report)
        parts.questions.answer(now_s)
        parts.desk.turn(now_s)
        plan = parts.mirror.plan(self._facts(scheduler, received), now_s)
        self._chunk = plan.chunk
        if plan.held or plan.released:
            self._count_held(parts.mirror.num_held)
        elif plan.chunk.chunk_tokens == self._ordered_chunk_tokens:
            return None
        self._ordered_chunk_tokens = plan.chunk.chunk_tokens
        turn = parts.stage.turn + 1
        return TurnOrder(turn, plan.chunk.chunk_tokens, plan.held, plan.released)

    def _facts(self, scheduler: Any, received: Sequence[Any]) -> TurnFacts:
        stage = self._parts.stage
        slot_index = stage.next_slot
        decodes = reading.decodes_of(scheduler, slot_index)

        def holdable() -> frozenset[str]:
            batches = (scheduler.running_mbs[slot_index], scheduler.last_mbs[slot_index])
            if any(batch is not None and has_penalties(batch) for batch in batches):
                return frozenset()
            return frozenset(r.rid for r in decodes if reading.may_be_held(r))

        return TurnFacts(
            slot_index=slot_index,
            decodes=tuple((request.rid, request.seqlen) for request in decodes),
            holdable=holdable,
            ending=frozenset(r.rid for r in stage.held_requests if r.to_finish is not None),
            started=reading.started_prompt(scheduler),
            arriving=reading.arriving_prompts(received),
            kv_free_ratio=reading.kv_free_ratio(scheduler),
            is_paused=scheduler._engine_paused,  # noqa: SLF001 - SGLang has no other way to tell
        )

    def _note_accepted(self, request: Any, now_s: float) -> None:
        if reading.is_health_check(request):
            return  # it would count as one that met its targets
        if self._parts.book.get(request.rid) is not None:
            self._parts.book.requeue(request.rid)
            return
        self._parts.mirror.accept(request.rid, len(request.origin_input_ids), now_s)
        self._parts.live.accept(request.rid, now_s)

    def _note_composed(self, batch: Any, now_s: float) -> None:
        parts, chunk = self._parts, self._chunk
        if chunk is None:
            return  # composed before the first order
        for request in reading.prefilled_requests(batch):
            parts.book.start(request.rid, request.num_matched_prefix_tokens, now_s)
        num_decodes, features = reading.features_of(batch)
        turn, slot_index = parts.stage.turn, parts.stage.slot_index
        composition = Composition(
            sequence=turn,
            slot_index=slot_index,
            chunk=chunk,
            num_tokens=reading.num_tokens_of(batch),
            num_decodes=num_decodes,
            features=features,
        )
        self._flights[slot_index] = (turn, batch)
        num_stages = parts.mirror.num_stages
        self._expected[turn] = (composition.num_tokens, chunk.chunk_tokens, num_stages)
        parts.collector.sent(composition, now_s)

    def _note_report(self, report: StageReport) -> None:
        expected = self._expected.get(report.turn)
        if expected is None:
            return  # of a turn before the first order
        num_tokens, chunk_tokens, num_missing = expected
        if (report.num_tokens, report.chunk_tokens) != (num_tokens, chunk_tokens):
            raise RuntimeError(
                f"turn {report.turn}: stage 0 ran {num_tokens} tokens with chunk {chunk_tokens}, "
                f"stage {report.stage_index} ran {report.num_tokens} with {report.chunk_tokens}"
            )
        if num_missing == 1:
            del self._expected[report.turn]
        else:
            self._expected[report.turn] = (num_tokens, chunk_tokens, num_missing - 1)
        self._parts.collector.stepped(report.turn, report.stage_index, report.start_s, report.end_s)

    def _note_completed(
        self, scheduler: Any, batch: Any, requests: Sequence[Any], now_s: float
    ) -> None:
        for request in requests:
            num_new = self._parts.book.advance(request.rid, len(request.output_ids), now_s)
            if num_new:
                self._parts.live.advance(request.rid, num_new, now_s)
            finish = reading.finish_of(request)
            if finish is not None:
                self._end(request.rid, finish, now_s)
        slot_index = next((i for i, b in enumerate(scheduler.mbs) if b is batch), None)
        flight = self._flights.get(-1 if slot_index is None else slot_index)
        if slot_index is not None and flight is not None and flight[1] is batch:
            del self._flights[slot_index]
            self._parts.collector.completed(flight[0], now_s, len(self._flights))

    def _end(self, request_id: str, finish: FinishReason, now_s: float) -> None:
        record = self._parts.book.end(request_id, finish, now_s)
        if record is not None:
            self._parts.live.end(request_id)
            self._parts.collector.ended(record)
