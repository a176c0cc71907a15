"""Parts of control over a scripted engine: micro-batches, reports, a desk; valid by default."""

from collections.abc import Sequence

from micro_batches import micro_batch_of
from pipelineserve.policy.chunking import ChunkDecision, Static
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.scheduler.messages import MicroBatch, Piece
from pipelineserve.scheduler.requests import FinishReason, RequestRecord
from pipelineserve_engine.control.assembly import make_desk
from pipelineserve_engine.control.desk import ControlDesk
from pipelineserve_engine.stage_messages import StepReport
from scripted_engine import ScriptedEngine

STATIC_CHUNK_TOKENS = 16
UNIX_TIME_S = 1_800_000_000.0


def a_desk(engine: ScriptedEngine) -> ControlDesk:
    """The desk of a scripted engine, which has one stage."""
    return make_desk(
        engine.core.scheduler,
        engine.observer,
        engine.telemetry,
        num_stages=1,
        static_chunk_tokens=STATIC_CHUNK_TOKENS,
        unix_time_s=UNIX_TIME_S,
    )


def a_leased(chunk_tokens: int = 32, lease_s: float = 10.0) -> LeasedPolicy:
    return LeasedPolicy(SchedulingPolicy(Static(chunk_tokens)), lease_s)


def a_piece(start: int = 0, num_tokens: int = 4, *, is_decode: bool = False) -> Piece:
    token_ids = tuple(range(num_tokens))
    return Piece("r", start, token_ids, (0,), is_decode, samples=True, output_index=0)


def a_decode(context_tokens: int) -> Piece:
    """One that attends to so many tokens, its own included."""
    return a_piece(context_tokens - 1, 1, is_decode=True)


def a_micro_batch(
    sequence: int = 0,
    pieces: Sequence[Piece] = (),
    *,
    slot_index: int = 0,
    chunk_tokens: int = 64,
    reason: Reason = Reason.STATIC_CHUNK,
) -> MicroBatch:
    chunk = ChunkDecision(chunk_tokens, reason)
    carried = pieces or (a_piece(),)
    return micro_batch_of(carried, sequence=sequence, slot_index=slot_index, chunk=chunk)


def a_report(
    sequence: int = 0, stage_index: int = 0, start_s: float = 1.0, end_s: float = 2.0
) -> StepReport:
    return StepReport(stage_index, sequence, 0, start_s, end_s, ())


def an_end(
    *,
    finish: FinishReason = FinishReason.LENGTH,
    arrival_s: float = 10.0,
    first_issue_s: float | None = 11.0,
    first_token_s: float | None = 12.0,
    last_token_s: float | None = 14.0,
    num_output_tokens: int = 5,
) -> RequestRecord:
    return RequestRecord(
        request_id="r",
        finish=finish,
        arrival_s=arrival_s,
        end_s=15.0,
        first_issue_s=first_issue_s,
        first_token_s=first_token_s,
        last_token_s=last_token_s,
        num_prompt_tokens=7,
        num_output_tokens=num_output_tokens,
        num_cached_tokens=0,
        num_requeues=2,
        held_s=0.75,
        longest_gap_s=1.25,
    )
