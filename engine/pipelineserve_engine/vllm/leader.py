"""Decides each turn of vLLM's scheduler, by policies that controllers lend, and tells what happens.

vLLM schedules for all stages in one process and composes a micro-batch per call of `schedule`: that
call is a turn. Its queue of micro-batches has as many places as there are stages and is first in,
first out, so what was composed at a turn is back before the turn of as many later: a slot.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.views import PromptLoad
from pipelineserve_engine.addon.ledger import Composition, StageReport
from pipelineserve_engine.addon.mirror import EngineSizes, TurnFacts
from pipelineserve_engine.addon.serving import ControlParts
from pipelineserve_engine.vllm import reading
from pipelineserve_engine.vllm.notes import TurnNote, attach, note_of

# vLLM leaves a running request out of a turn before this one; nobody counts so far.
NEVER = 1 << 62
# A stage that is so many turns late with its times does not tell them at all.
MOST_UNREPORTED_TURNS = 256
_NOTHING = PromptLoad(0, 0, 0, 0)


class Leader:
    """One at a time calls it: whoever has vLLM's scheduler in hand, or the ticker in between.

    Args:
        parts: what it works with.
        sizes: of vLLM.
        take_reports: what the stages have told since the last call.
        reports_path: where they tell it.

    Attributes:
        turn: that is composed next.
    """

    def __init__(
        self,
        parts: ControlParts,
        sizes: EngineSizes,
        take_reports: Callable[[], Sequence[StageReport]],
        reports_path: str,
    ) -> None:
        self.turn = 0
        self._parts = parts
        self._sizes = sizes
        self._take_reports = take_reports
        self._reports_path = reports_path
        self._chunk: ChunkDecision | None = None
        self._flights: set[int] = set()

    def tick(self, now_s: float) -> None:
        """Answer controllers and tell watchers, between turns too: an idle vLLM has no turns."""
        self._parts.mistakes.guard(lambda: self._catch_up(now_s))

    def compose(self, scheduler: Any, now_s: float) -> None:
        """A turn begins: hold, release and set the budget, right before vLLM composes."""
        self._parts.mistakes.guard(lambda: self._decide(scheduler, now_s))
        if self._parts.mistakes.has_any:
            self._let_go(scheduler)

    def on_composed(self, scheduler: Any, output: Any, now_s: float) -> None:
        """It has composed a micro-batch, or found nothing to compute."""
        self._parts.mistakes.guard(lambda: self._note_composed(scheduler, output, now_s))
        self.turn += 1

    def on_completed(self, output: Any, requests: Sequence[Any], now_s: float) -> None:
        """A micro-batch has come back, and its tokens are with its requests."""
        self._parts.mistakes.guard(lambda: self._note_completed(output, requests, now_s))

    def on_accepted(self, request: Any, now_s: float) -> None:
        """A request has entered the queue."""
        self._parts.mistakes.guard(lambda: self._note_accepted(request, now_s))

    def on_preempted(self, request: Any, now_s: float) -> None:
        """A running request lost its KV and waits again."""
        self._parts.mistakes.guard(lambda: self._note_preempted(request, now_s))

    def on_ended(self, requests: Sequence[Any], now_s: float) -> None:
        """These have ended outside of any micro-batch."""
        self._parts.mistakes.guard(lambda: self._note_ended(requests, now_s))

    def _catch_up(self, now_s: float) -> None:
        parts = self._parts
        for report in self._take_reports():
            parts.ledger.report(report)
        parts.questions.answer(now_s)
        parts.desk.turn(now_s)

    def _decide(self, scheduler: Any, now_s: float) -> None:
        self._catch_up(now_s)
        parts = self._parts
        plan = parts.mirror.plan(self._facts(scheduler), now_s)
        for request_id in plan.held:
            scheduler.requests[request_id].next_decode_eligible_step = NEVER
        for request_id in plan.released:
            scheduler.requests[request_id].next_decode_eligible_step = 0
        if plan.held or plan.released:
            parts.count_held(parts.mirror.num_held)
        self._chunk = plan.chunk
        scheduler.max_num_scheduled_tokens = self._bounded(plan.chunk.chunk_tokens)

    def _facts(self, scheduler: Any) -> TurnFacts:
        standing = reading.standing_of(scheduler, self._parts.book)
        decodes = standing.decodes
        return TurnFacts(
            slot_index=self.turn % self._sizes.num_slots,
            decodes=tuple((request.request_id, request.num_tokens) for request in decodes),
            holdable=lambda: frozenset(r.request_id for r in decodes if reading.may_be_held(r)),
            ending=frozenset(),  # vLLM ends who is aborted at once, held or not
            started=standing.started,
            arriving=_NOTHING,  # they are in the queue before the turn
            kv_free_ratio=reading.kv_free_ratio(scheduler),
            is_paused=reading.is_paused(scheduler),
        )

    def _let_go(self, scheduler: Any) -> None:
        """After a mistake: nobody is held, and the static chunk holds, but for decodes."""
        for request in scheduler.running:
            request.next_decode_eligible_step = 0
        least = max(self._parts.static_chunk_tokens, len(scheduler.running))
        scheduler.max_num_scheduled_tokens = self._bounded(least)

    def _bounded(self, chunk_tokens: int) -> int:
        return min(chunk_tokens, self._sizes.max_chunk_tokens)

    def _note_accepted(self, request: Any, now_s: float) -> None:
        if request.resumable:
            return  # goes on after its end with more input; it is left to vLLM altogether
        self._parts.ledger.accept(request.request_id, request.num_prompt_tokens, now_s)

    def _note_composed(self, scheduler: Any, output: Any, now_s: float) -> None:
        chunk, book = self._chunk, self._parts.book
        if chunk is None or not output.total_num_scheduled_tokens:
            return
        pieces = reading.pieces_of(scheduler, output, book)
        for piece in pieces:
            if not piece.is_decode:
                book.start(piece.request.request_id, piece.past_tokens, now_s)
        composition = Composition(
            sequence=self.turn,
            slot_index=self.turn % self._sizes.num_slots,
            chunk=chunk,
            num_tokens=output.total_num_scheduled_tokens,
            num_decodes=sum(piece.is_decode for piece in pieces),
            features=reading.features_of(pieces),
        )
        self._flights.add(self.turn)
        self._parts.ledger.compose(composition, now_s)
        attach(output, TurnNote(self.turn, chunk.chunk_tokens, self._reports_path))

    def _note_completed(self, output: Any, requests: Sequence[Any], now_s: float) -> None:
        ledger = self._parts.ledger
        for request in requests:
            ledger.advance(request.request_id, request.num_output_tokens, now_s)
        self._note_ended(requests, now_s)
        note = note_of(output)
        if note is None:
            return
        self._flights.discard(note.turn)
        ledger.complete(note.turn, now_s, len(self._flights))
        oldest = ledger.oldest_unreported_turn
        if oldest is not None and note.turn - oldest > MOST_UNREPORTED_TURNS:
            raise RuntimeError(
                f"turn {oldest}: expected a report of every stage before turn {note.turn}, "
                "got none of some; the log of that stage's process says why"
            )

    def _note_preempted(self, request: Any, now_s: float) -> None:
        tracked = self._parts.book.get(request.request_id)
        if tracked is None:
            return
        if tracked.is_held:
            self._parts.book.release(tracked, now_s)
            self._parts.count_held(self._parts.mirror.num_held)
        request.next_decode_eligible_step = 0
        self._parts.book.requeue(request.request_id)

    def _note_ended(self, requests: Sequence[Any], now_s: float) -> None:
        held_before = self._parts.mirror.num_held
        for request in requests:
            finish = reading.finish_of(request)
            if finish is not None:
                self._parts.ledger.end(request.request_id, finish, now_s)
        if self._parts.mirror.num_held != held_before:
            self._parts.count_held(self._parts.mirror.num_held)
