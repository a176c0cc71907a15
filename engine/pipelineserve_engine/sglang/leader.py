"""Stage 0's side: decides for all ranks, by policies that controllers lend, and tells what happens.

Only here are policies, demand and leases evaluated. What comes of it is a number and two lists of
requests, which travel to the other ranks with SGLang's own requests, so that all obey at one turn.
A mistake of ours must not end the server: after one, nothing is decided any more, nobody stays
held, and the static chunk holds.
"""

from collections.abc import Sequence
from typing import Any

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.addon.ledger import Composition, StageReport
from pipelineserve_engine.addon.mirror import TurnFacts
from pipelineserve_engine.addon.serving import ControlParts
from pipelineserve_engine.sglang import reading
from pipelineserve_engine.sglang.batches import has_penalties
from pipelineserve_engine.sglang.orders import TurnOrder
from pipelineserve_engine.sglang.stage import StageSide


class Leader:
    """Called by the hooks of stage 0's first rank, in the scheduling thread.

    Args:
        parts: what it works with.
        stage: this rank's own side.
    """

    def __init__(self, parts: ControlParts, stage: StageSide) -> None:
        self._parts = parts
        self._stage = stage
        self._ordered_chunk_tokens = 0
        self._chunk: ChunkDecision | None = None
        # By slot: the turn of its micro-batch in flight, and the batch itself.
        self._flights: dict[int, tuple[int, Any]] = {}

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
        if not self._parts.mistakes.has_any:
            try:
                return self._decide(scheduler, received, reports, now_s)
            except Exception as error:  # noqa: BLE001 - the server must go on, whatever it is
                self._parts.mistakes.note(error)
        return self._harmless_order()

    def on_accepted(self, request: Any, now_s: float) -> None:
        """A request has entered the queue, for the first time or again."""
        self._parts.mistakes.guard(lambda: self._note_accepted(request, now_s))

    def on_composed(self, batch: Any, now_s: float) -> None:
        """A micro-batch of this turn is about to be launched."""
        self._parts.mistakes.guard(lambda: self._note_composed(batch, now_s))

    def on_completed(
        self, scheduler: Any, batch: Any, requests: Sequence[Any], now_s: float
    ) -> None:
        """A micro-batch has come back, and its tokens are with its requests."""
        note = self._note_completed
        self._parts.mistakes.guard(lambda: note(scheduler, batch, requests, now_s))

    def on_aborted(self, request: Any, now_s: float) -> None:
        """A request has ended outside of any micro-batch."""
        ledger, finish = self._parts.ledger, FinishReason.CANCELLED
        self._parts.mistakes.guard(lambda: ledger.end(request.rid, finish, now_s))

    def _harmless_order(self) -> TurnOrder | None:
        stage, static_chunk_tokens = self._stage, self._parts.static_chunk_tokens
        released = tuple(request.rid for request in stage.held_requests)
        if not released and stage.chunk_tokens == static_chunk_tokens:
            return None
        return TurnOrder(stage.turn + 1, static_chunk_tokens, released=released)

    def _decide(
        self, scheduler: Any, received: Sequence[Any], reports: Sequence[StageReport], now_s: float
    ) -> TurnOrder | None:
        parts = self._parts
        for report in reports:
            parts.ledger.report(report)
        parts.questions.answer(now_s)
        parts.desk.turn(now_s)
        plan = parts.mirror.plan(self._facts(scheduler, received), now_s)
        self._chunk = plan.chunk
        if plan.held or plan.released:
            parts.count_held(parts.mirror.num_held)
        elif plan.chunk.chunk_tokens == self._ordered_chunk_tokens:
            return None
        self._ordered_chunk_tokens = plan.chunk.chunk_tokens
        turn = self._stage.turn + 1
        return TurnOrder(turn, plan.chunk.chunk_tokens, plan.held, plan.released)

    def _facts(self, scheduler: Any, received: Sequence[Any]) -> TurnFacts:
        stage = self._stage
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
        self._parts.ledger.accept(request.rid, len(request.origin_input_ids), now_s)

    def _note_composed(self, batch: Any, now_s: float) -> None:
        chunk = self._chunk
        if chunk is None:
            return  # composed before the first order
        for request in reading.prefilled_requests(batch):
            self._parts.book.start(request.rid, request.num_matched_prefix_tokens, now_s)
        num_decodes, features = reading.features_of(batch)
        turn, slot_index = self._stage.turn, self._stage.slot_index
        composition = Composition(
            sequence=turn,
            slot_index=slot_index,
            chunk=chunk,
            num_tokens=reading.num_tokens_of(batch),
            num_decodes=num_decodes,
            features=features,
        )
        self._flights[slot_index] = (turn, batch)
        self._parts.ledger.compose(composition, now_s)

    def _note_completed(
        self, scheduler: Any, batch: Any, requests: Sequence[Any], now_s: float
    ) -> None:
        ledger = self._parts.ledger
        for request in requests:
            ledger.advance(request.rid, len(request.output_ids), now_s)
            finish = reading.finish_of(request)
            if finish is not None:
                ledger.end(request.rid, finish, now_s)
        slot_index = next((i for i, b in enumerate(scheduler.mbs) if b is batch), None)
        flight = self._flights.get(-1 if slot_index is None else slot_index)
        if slot_index is not None and flight is not None and flight[1] is batch:
            del self._flights[slot_index]
            ledger.complete(flight[0], now_s, len(self._flights))
