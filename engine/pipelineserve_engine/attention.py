"""Attention over a paged KV cache for packed micro-batches, in transformers' attention interface.

A micro-batch is one packed row of tokens. Every piece first writes its keys and values into the
blocks of its request, then each piece attends to its own request's context. A context that lies in
few runs of the cache is read where it is; only a scattered one is gathered, which costs several
times the attention itself (bench/results.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import AttentionInterface

from pipelineserve_engine.kv_cache import KvCache

PAGED_ATTENTION = "pipelineserve_paged"

# Another run costs two small products more, a gathered token a copy: measured, they are even here.
_MIN_RUN_TOKENS = 48


@dataclass(frozen=True, slots=True)
class PackedPiece:
    """One request's tokens in the packed row, and where its context lies in the cache.

    Attributes:
        row_start, row_end: its tokens in the packed row.
        context: cache positions of the whole context, this piece's tokens included: its runs in
            order where there are few, else an index tensor [context_tokens].
        mask: added to the scores, [tokens, context_tokens]; None where every token sees all of
            the context (a decode), or where `is_fresh`.
        is_fresh: the piece is the whole context, so plain causal attention holds.
    """

    row_start: int
    row_end: int
    context: tuple[slice, ...] | torch.Tensor
    mask: torch.Tensor | None
    is_fresh: bool


@dataclass(frozen=True, slots=True)
class PackedContext:
    """What the attention of every layer needs to know of one micro-batch.

    Attributes:
        write_positions: cache position of each packed token, [tokens], int64.
        pieces: in packed order, without gaps.
    """

    write_positions: torch.Tensor
    pieces: tuple[PackedPiece, ...]


@dataclass(frozen=True, slots=True)
class PagedKv:
    """Passed through the decoder layers' keyword arguments to the attention function."""

    cache: KvCache
    first_layer_index: int
    packed: PackedContext


class _AttentionModule(Protocol):
    layer_idx: int


@dataclass(frozen=True, slots=True)
class PieceLayout:
    """A piece before it is packed.

    Attributes:
        start: position of its first token in the request.
        num_tokens: at least 1.
        block_ids: blocks of its request, from position 0 to the end of the piece, int32.
    """

    start: int
    num_tokens: int
    block_ids: npt.NDArray[np.int32]


def pack(
    layouts: Sequence[PieceLayout], block_tokens: int, dtype: torch.dtype, device: torch.device
) -> PackedContext:
    """Lay out the pieces of one micro-batch.

    Args:
        layouts: the pieces in packed order.
        block_tokens: tokens of one block.
        dtype: of the masks; the model's.
        device: where the cache lies.
    """
    pieces: list[PackedPiece] = []
    writes: list[torch.Tensor] = []
    row = 0
    for layout in layouts:
        start, length = layout.start, layout.num_tokens
        runs = _runs(layout.block_ids, start + length, block_tokens)
        writes.append(_tail(runs, start, length))
        is_fresh = start == 0
        is_decode = length == 1
        # The products over several runs make the scores of a whole piece, too many for a long one.
        reads_in_place = len(runs) == 1 or (
            is_decode and start + length >= len(runs) * _MIN_RUN_TOKENS
        )
        context = runs if reads_in_place else _index(runs).to(device)
        mask = None if is_fresh or is_decode else _causal_mask(start, length, dtype, device)
        pieces.append(PackedPiece(row, row + length, context, mask, is_fresh))
        row += length
    return PackedContext(torch.cat(writes).to(device), tuple(pieces))


def paged_attention(
    module: _AttentionModule,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 - the interface's name; ours is per piece
    *,
    scaling: float,
    paged_kv: PagedKv,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Write the packed tokens' keys and values, then attend piece by piece.

    Args:
        module: the attention layer; tells its index in the model.
        query: [1, heads, tokens, head_dim].
        key: [1, kv_heads, tokens, head_dim].
        value: like `key`.
        attention_mask: ignored.
        scaling: factor on the scores.
        paged_kv: the cache and the micro-batch's layout.

    Returns:
        [1, tokens, heads, head_dim], and no attention weights.
    """
    keys, values = paged_kv.cache.layer(module.layer_idx - paged_kv.first_layer_index)
    packed = paged_kv.packed
    keys.index_copy_(1, packed.write_positions, key[0])
    values.index_copy_(1, packed.write_positions, value[0])
    outputs = []
    for piece in packed.pieces:
        rows = slice(piece.row_start, piece.row_end)
        piece_query = query[0, :, rows]
        if piece.is_fresh:
            output = _attend(piece_query, key[0, :, rows], value[0, :, rows], piece, scaling)
        elif isinstance(piece.context, tuple) and len(piece.context) > 1:
            output = _attend_runs(piece_query, keys, values, piece.context, scaling)
        else:
            (positions,) = piece.context if isinstance(piece.context, tuple) else (piece.context,)
            output = _attend(piece_query, keys[:, positions], values[:, positions], piece, scaling)
        outputs.append(output)
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
    return output.transpose(0, 1).unsqueeze(0), None


def register() -> None:
    """Make `PAGED_ATTENTION` known to transformers; idempotent."""
    AttentionInterface.register(PAGED_ATTENTION, paged_attention)


def _attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    piece: PackedPiece,
    scaling: float,
) -> torch.Tensor:
    """One piece: query [heads, tokens, head_dim] against [kv_heads, context, head_dim]."""
    num_heads, num_tokens, head_dim = query.shape
    num_kv_heads = keys.shape[0]
    if num_tokens == 1:
        # The heads that share keys become rows of one product, so that keys are read once.
        grouped = query.reshape(1, num_kv_heads, num_heads // num_kv_heads, head_dim)
        output = scaled_dot_product_attention(grouped, keys[None], values[None], scale=scaling)
        return output.reshape(num_heads, 1, head_dim)
    return scaled_dot_product_attention(
        query[None], keys[None], values[None],
        attn_mask=piece.mask, is_causal=piece.is_fresh, scale=scaling, enable_gqa=True,
    )[0]  # fmt: skip


def _attend_runs(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    runs: tuple[slice, ...],
    scaling: float,
) -> torch.Tensor:
    """One decode: query [heads, 1, head_dim] against runs of the cache, none of them copied."""
    num_heads, _, head_dim = query.shape
    num_kv_heads = keys.shape[0]
    grouped = query.reshape(num_kv_heads, num_heads // num_kv_heads, head_dim) * scaling
    scores = torch.cat([grouped @ keys[:, run].transpose(1, 2) for run in runs], dim=2)
    weights = scores.softmax(dim=2, dtype=torch.float32).to(query.dtype)
    lengths = [run.stop - run.start for run in runs]
    parts = zip(torch.split(weights, lengths, dim=2), runs, strict=True)
    output = torch.zeros_like(grouped)
    for run_weights, run in parts:
        output = torch.baddbmm(output, run_weights, values[:, run])
    return output.reshape(num_heads, 1, head_dim)


def _runs(
    block_ids: npt.NDArray[np.int32], num_tokens: int, block_tokens: int
) -> tuple[slice, ...]:
    """The context as slices of cache positions; blocks next to each other make one."""
    breaks = np.flatnonzero(np.diff(block_ids) != 1) + 1
    firsts = [0, *breaks.tolist()]
    starts = [int(block_ids[first]) * block_tokens for first in firsts]
    ends = [first * block_tokens for first in firsts[1:]] + [num_tokens]
    return tuple(
        slice(start, start + end - first * block_tokens)
        for start, first, end in zip(starts, firsts, ends, strict=True)
    )


def _index(runs: tuple[slice, ...]) -> torch.Tensor:
    return torch.cat([torch.arange(run.start, run.stop) for run in runs])


def _tail(runs: tuple[slice, ...], start: int, length: int) -> torch.Tensor:
    """Cache positions of tokens `start` … `start + length` of the context."""
    if length == 1:
        return torch.tensor([runs[-1].stop - 1])
    return _index(runs)[start : start + length]


def _causal_mask(start: int, length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Token i of the piece sees positions 0 … start + i; [length, start + length]."""
    positions = torch.arange(start + length, device=device)
    is_later = positions[None, :] > (start + torch.arange(length, device=device))[:, None]
    mask = torch.zeros((length, start + length), dtype=dtype, device=device)
    return mask.masked_fill(is_later, float("-inf"))
