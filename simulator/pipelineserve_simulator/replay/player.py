"""Makes a recorded run's calls to a new scheduler, and compares what it composes."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelineserve.policy.preemption import UNMEASURED
from pipelineserve.scheduler.messages import MicroBatch, StepResult
from pipelineserve.scheduler.requests import FinishReason, NewRequest
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_simulator.replay.contents import STOP_TOKEN_ID, RecordedTokens
from pipelineserve_simulator.replay.recorded import (
    Adopted,
    Call,
    Completed,
    CostsKnown,
    Ended,
    Queued,
    RecordedPiece,
    RecordedRun,
    Restarted,
    Sent,
    Tried,
)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first micro-batch that came out differently.

    Attributes:
        recorded: what was sent; None: nothing could be composed then.
        composed: what is composed now; None: nothing can be.
    """

    recorded: Sent | None
    composed: Sent | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay went.

    Attributes:
        num_equal: micro-batches that came out as recorded, before the first that did not.
        divergence: None: all of them did.
    """

    num_equal: int
    divergence: Divergence | None


def replay(run: RecordedRun) -> Replayed:
    """Make all calls, up to the first micro-batch that differs: all after it would as well.

    Raises:
        ValueError: a completion is of nothing that is in flight.
    """
    player = _Player(run)
    for index, call in enumerate(run.calls):
        if isinstance(call, Completed):
            player.complete(call, _stopped_by(run.calls, index))
        elif (divergence := player.make(call)) is not None:
            return Replayed(player.num_equal, divergence)
    return Replayed(player.num_equal, None)


class _Player:
    def __init__(self, run: RecordedRun) -> None:
        self.num_equal = 0
        self._tokens = RecordedTokens(run.calls, run.sizes.block_tokens)
        self._scheduler = Scheduler(run.sizes, run.policy.chunking, schedule=run.schedule)
        self._scheduler.adopt(run.policy)
        self._costs = UNMEASURED
        self._in_flight: dict[int, MicroBatch] = {}

    def make(self, call: Call) -> Divergence | None:
        """Make any call but a completion."""
        match call:
            case Queued():
                self._queue(call)
            case Adopted(policy):
                self._scheduler.adopt(policy)
            case CostsKnown(costs):
                self._costs = costs
            case Tried(at_s, slot_index):
                return self._compose(at_s, slot_index, None)
            case Sent(at_s=at_s, slot_index=slot_index):
                return self._compose(at_s, slot_index, call)
            case Ended(is_early=True):
                self._end(call)
            case Restarted():
                self._in_flight.clear()
                self._scheduler.recall_all()
            case Completed() | Ended():
                pass  # an end by a token happens within the completion before it
        return None

    def complete(self, call: Completed, stopped_ids: frozenset[str]) -> None:
        """Give back the tokens of a micro-batch."""
        micro_batch = self._in_flight.pop(call.sequence, None)
        if micro_batch is None:
            raise ValueError(f"micro-batch {call.sequence} is completed, but is not in flight")
        tokens = tuple(
            STOP_TOKEN_ID
            if piece.request_id in stopped_ids
            else self._tokens.at(piece.request_id, piece.start + len(piece.token_ids))
            for piece in micro_batch.sampling_pieces
        )
        result = StepResult(call.sequence, tokens)
        self._scheduler.complete(micro_batch.slot_index, result, call.at_s)

    def _queue(self, call: Queued) -> None:
        new = NewRequest(
            request_id=call.request_id,
            prompt_token_ids=self._tokens.first(call.request_id, call.prompt_tokens),
            max_output_tokens=call.max_output_tokens,
            stop_token_ids=frozenset((STOP_TOKEN_ID,)),
            client_id=call.client_id,
            priority=call.priority,
        )
        self._scheduler.submit(new, call.at_s)

    def _end(self, call: Ended) -> None:
        scheduler = self._scheduler
        match call.finish:
            case FinishReason.CANCELLED:
                scheduler.cancel(call.request_id, call.at_s)
            case FinishReason.ERROR:
                scheduler.fail(call.request_id, call.at_s)
            case FinishReason.STOP | FinishReason.LENGTH:
                scheduler.finish(call.request_id, call.at_s)

    def _compose(self, at_s: float, slot_index: int, recorded: Sent | None) -> Divergence | None:
        micro_batch = self._scheduler.next_micro_batch(slot_index, at_s, self._costs)
        composed = None if micro_batch is None else _sent(micro_batch, at_s)
        if composed != recorded:
            return Divergence(recorded, composed)
        if micro_batch is not None:
            self._in_flight[micro_batch.sequence] = micro_batch
            self.num_equal += 1
        return None


def _sent(micro_batch: MicroBatch, at_s: float) -> Sent:
    return Sent(
        at_s=at_s,
        sequence=micro_batch.sequence,
        slot_index=micro_batch.slot_index,
        chunk_tokens=micro_batch.chunk.chunk_tokens,
        pieces=tuple(
            RecordedPiece(piece.request_id, piece.start, len(piece.token_ids), piece.is_decode)
            for piece in micro_batch.pieces
        ),
    )


def _stopped_by(calls: Sequence[Call], index: int) -> frozenset[str]:
    """Requests that a completion's tokens stopped; their ends follow it at once."""
    stopped = set()
    for following in range(index + 1, len(calls)):
        call = calls[following]
        if not isinstance(call, Ended) or call.is_early:
            break
        if call.finish is FinishReason.STOP:
            stopped.add(call.request_id)
    return frozenset(stopped)
