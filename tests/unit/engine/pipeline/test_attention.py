"""Attention over the paged cache against plain attention over the whole context."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from pipelineserve_engine import attention
from pipelineserve_engine.attention import PagedKv, PieceLayout, pack, paged_attention
from pipelineserve_engine.kv_cache import KvCache

BLOCK_TOKENS, NUM_BLOCKS, KV_HEADS, HEADS, HEAD_DIM = 4, 64, 2, 6, 8
SCALING = 0.3


def a_layout(start: int, num_tokens: int, block_ids: list[int]) -> PieceLayout:
    return PieceLayout(start, num_tokens, np.array(block_ids, dtype="<i4"))


def attend(layouts: list[PieceLayout], contexts: list[torch.Tensor]) -> torch.Tensor:
    """Rows of all pieces, [tokens, heads, head_dim]; a context is [3, heads, tokens, head_dim]."""
    cache = KvCache(
        num_layers=1, num_kv_heads=KV_HEADS, num_positions=NUM_BLOCKS * BLOCK_TOKENS,
        head_dim=HEAD_DIM, dtype=torch.float32, device=torch.device("cpu"),
    )  # fmt: skip
    keys, values = cache.layer(0)
    for layout, context in zip(layouts, contexts, strict=True):
        for position in range(layout.start):
            block = int(layout.block_ids[position // BLOCK_TOKENS])
            place = block * BLOCK_TOKENS + position % BLOCK_TOKENS
            keys[:, place], values[:, place] = context[1:, :KV_HEADS, position]
    packed = pack(layouts, BLOCK_TOKENS, torch.float32, torch.device("cpu"))
    news = [
        c[:, :, p.start : p.start + p.num_tokens] for p, c in zip(layouts, contexts, strict=True)
    ]
    query, key, value = torch.cat(news, dim=2)[:, None]
    key, value = key[:, :KV_HEADS], value[:, :KV_HEADS]
    output, _ = paged_attention(
        SimpleNamespace(layer_idx=0), query, key, value, None,
        scaling=SCALING, paged_kv=PagedKv(cache, 0, packed),
    )  # fmt: skip
    return output[0]


def reference(layout: PieceLayout, context: torch.Tensor) -> torch.Tensor:
    end = layout.start + layout.num_tokens
    query, key, value = context[:, None, :, :end]
    output = scaled_dot_product_attention(
        query, key[:, :KV_HEADS], value[:, :KV_HEADS],
        is_causal=True, scale=SCALING, enable_gqa=True,
    )  # fmt: skip
    return output[0, :, layout.start :].transpose(0, 1)


@given(data=st.data())
def test_equals_plain_attention_wherever_the_blocks_lie(data: st.DataObject) -> None:
    free = data.draw(st.permutations(range(NUM_BLOCKS)))
    layouts, contexts = [], []
    for seed in range(data.draw(st.integers(1, 4))):
        end = data.draw(st.integers(1, 60))
        start = data.draw(st.one_of(st.just(end - 1), st.just(0), st.integers(0, end - 1)))
        num_blocks = -(-end // BLOCK_TOKENS)
        taken, free = free[:num_blocks], free[num_blocks:]
        num_runs_hint = data.draw(st.integers(0, 2))
        blocks = [sorted(taken), sorted(taken, reverse=True), taken][num_runs_hint]
        layouts.append(a_layout(start, end - start, blocks))
        generator = torch.Generator().manual_seed(seed)
        contexts.append(torch.randn((3, HEADS, end, HEAD_DIM), generator=generator))
    min_run_tokens = data.draw(st.sampled_from([1, 8, 10_000]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_MIN_RUN_TOKENS", min_run_tokens)
        output = attend(layouts, contexts)
    expected = torch.cat([reference(p, c) for p, c in zip(layouts, contexts, strict=True)])
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


def context_of(layout: PieceLayout) -> tuple[slice, ...] | torch.Tensor:
    packed = pack([layout], BLOCK_TOKENS, torch.float32, torch.device("cpu"))
    return packed.pieces[0].context


def test_a_decode_reads_long_runs_in_place() -> None:
    blocks = [*range(20, 40), *range(2, 14)]
    assert context_of(a_layout(126, 1, blocks)) == (slice(80, 160), slice(8, 55))


def test_a_decode_gathers_a_context_in_many_short_runs() -> None:
    context = context_of(a_layout(126, 1, list(range(62, -2, -2))))
    assert isinstance(context, torch.Tensor)
    assert context[:5].tolist() == [248, 249, 250, 251, 240]


def test_a_piece_of_a_prompt_reads_one_run_in_place_and_gathers_several() -> None:
    assert context_of(a_layout(4, 4, [7, 8])) == (slice(28, 36),)
    assert isinstance(context_of(a_layout(124, 2, [*range(20, 40), *range(2, 14)])), torch.Tensor)
