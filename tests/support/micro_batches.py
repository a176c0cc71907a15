"""Micro-batches of given pieces; valid by default."""

from collections.abc import Sequence

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.reasons import Reason
from pipelineserve.scheduler.messages import BlockCopy, Decodes, MicroBatch, Piece

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
        request_ids=tuple(piece.request_id for piece in decodes),
        starts=tuple(piece.start for piece in decodes),
        token_ids=tuple(piece.token_ids[0] for piece in decodes),
        block_ids=tuple(piece.block_ids for piece in decodes),
        output_indices=tuple(piece.output_index for piece in decodes),
    )
    micro_batch = MicroBatch(sequence, slot_index, columns, prefills, chunk, copies)
    assert micro_batch.pieces == tuple(pieces)
    return micro_batch
