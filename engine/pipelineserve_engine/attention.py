"""Attention over a paged KV cache for packed micro-batches, in transformers' attention interface.

A micro-batch is one packed row of tokens. Every piece first writes its keys and values into the
blocks of its request, then each piece attends to its own request's context. A context that lies in
one run of the cache is read where it is; only a scattered one is gathered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import AttentionInterface

from pipelineserve_engine.kv_cache import KvCache

PAGED_ATTENTION = "pipelineserve_paged"


@dataclass(frozen=True, slots=True)
class PackedPiece:
    """One request's tokens in the packed row, and where its context lies in the cache.

    Attributes:
        row_start, row_end: its tokens in the packed row.
        context: cache positions of the whole context, this piece's tokens included: a slice when
            they are consecutive, else an index tensor [context_tokens].
        mask: added to the scores, [tokens, context_tokens]; None where every token sees all of
            the context (a decode), or where `is_fresh`.
        is_fresh: the piece is the whole context, so plain causal attention holds.
    """

    row_start: int
    row_end: int
    context: slice | torch.Tensor
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
        block_ids: blocks of its request, from position 0 to the end of the piece.
    """

    start: int
    num_tokens: int
    block_ids: tuple[int, ...]


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
        context = _context_positions(layout.block_ids, start + length, block_tokens, device)
        writes.append(_tail(context, start, length, device))
        is_fresh = start == 0
        mask = None if is_fresh or length == 1 else _causal_mask(start, length, dtype, device)
        pieces.append(PackedPiece(row, row + length, context, mask, is_fresh))
        row += length
    return PackedContext(torch.cat(writes), tuple(pieces))


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
        if piece.is_fresh:
            piece_keys, piece_values = key[0, :, rows], value[0, :, rows]
        else:
            piece_keys, piece_values = keys[:, piece.context], values[:, piece.context]
        outputs.append(_attend(query[0, :, rows], piece_keys, piece_values, piece, scaling))
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


def _context_positions(
    blocks: Sequence[int], num_tokens: int, block_tokens: int, device: torch.device
) -> slice | torch.Tensor:
    first = blocks[0]
    if all(block == first + index for index, block in enumerate(blocks)):
        return slice(first * block_tokens, first * block_tokens + num_tokens)
    table = torch.tensor(blocks, dtype=torch.int64, device=device)
    offsets = torch.arange(block_tokens, device=device)
    return (table[:, None] * block_tokens + offsets).reshape(-1)[:num_tokens]


def _tail(
    context: slice | torch.Tensor, start: int, length: int, device: torch.device
) -> torch.Tensor:
    if isinstance(context, slice):
        return torch.arange(context.start + start, context.start + start + length, device=device)
    return context[start : start + length]


def _causal_mask(start: int, length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Token i of the piece sees positions 0 … start + i; [length, start + length]."""
    positions = torch.arange(start + length, device=device)
    is_later = positions[None, :] > (start + torch.arange(length, device=device))[:, None]
    mask = torch.zeros((length, start + length), dtype=dtype, device=device)
    return mask.masked_fill(is_later, float("-inf"))
