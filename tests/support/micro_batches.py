"""Micro-batches of given pieces; valid by default."""

from collections.abc import Sequence

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.reasons import Reason
from pipelineserve.scheduler.messages import BlockCopy, Decodes, MicroBatch, Piece
from pipelineserve.scheduler.requests import NewRequest, Request

CHUNK = ChunkDecision(64, Reason.STATIC_CHUNK)


def micro_batch_of(
    pieces: Sequence[Piece],
    *,
    sequence: int = 0,
    slot_index: int = 0,
    chunk: ChunkDecision = CHUNK,
    copies: tuple[BlockCopy, ...] = (),
) -> MicroBatch:
    """Decodes come first among the pieces, as the scheduler composes them."""
    decodes = [piece for piece in pieces if piece.is_decode]
    prefills = tuple(piece for piece in pieces if not piece.is_decode)
    columns = Decodes(
        [_request_of(piece) for piece in decodes],
        [piece.start for piece in decodes],
        [piece.block_ids for piece in decodes],
    )
    micro_batch = MicroBatch(sequence, slot_index, columns, prefills, chunk, copies)
    assert micro_batch.pieces == tuple(pieces)
    return micro_batch


def _request_of(decode: Piece) -> Request:
    """One that could have such a piece."""
    num_prompt_tokens = decode.start + 1 - decode.output_index
    new = NewRequest(decode.request_id, (0,) * num_prompt_tokens)
    token_ids = [0] * decode.start + list(decode.token_ids)
    return Request(new, 0.0, 1, 0, token_ids)
