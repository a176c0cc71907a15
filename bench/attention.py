"""One decode's attention over a context that lies in several runs of the KV cache.

For contexts of several lengths in one to eight runs: microseconds of reading the runs in place and
of gathering the context first, the least of many, taken in turn, on one thread. The cache is larger
than the processor's own, so that keys and values come from memory. Shapes are SmolLM2-135M's.
"""

import argparse
import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch

from pipelineserve_engine import attention
from pipelineserve_engine.attention import PackedContext, PagedKv, PieceLayout, pack
from pipelineserve_engine.kv_cache import KvCache

KV_HEADS, HEADS, HEAD_DIM, BLOCK_TOKENS, NUM_BLOCKS, NUM_LAYERS = 3, 9, 64, 16, 4096, 6
REPEATS = 300


def layout_of(context_tokens: int, num_runs: int) -> PieceLayout:
    """The last token of a context whose runs are equal and far from each other."""
    per_run = context_tokens // BLOCK_TOKENS // num_runs
    apart = NUM_BLOCKS // num_runs
    blocks = [run * apart + index for run in range(num_runs) for index in range(per_run)]
    return PieceLayout(len(blocks) * BLOCK_TOKENS - 1, 1, np.array(blocks, dtype="<i4"))


def packed(layout: PieceLayout, *, in_place: bool) -> PackedContext:
    """The micro-batch of this one decode, its context read in place or gathered."""
    with mock.patch.object(attention, "_MIN_RUN_TOKENS", 1 if in_place else 1 << 30):
        context = pack([layout], BLOCK_TOKENS, torch.float32, torch.device("cpu"))
    if in_place or isinstance(context.pieces[0].context, torch.Tensor):
        return context
    # One run is never gathered by itself.
    runs = context.pieces[0].context
    index = torch.cat([torch.arange(run.start, run.stop) for run in runs])
    piece = context.pieces[0]
    gathered = attention.PackedPiece(0, 1, index, piece.mask, is_fresh=False)
    return PackedContext(context.write_positions, (gathered,))


def least_us(calls: list[Callable[[], object]]) -> list[float]:
    """Of each call, taken in turn."""
    least = [float("inf")] * len(calls)
    for _ in range(REPEATS):
        for index, call in enumerate(calls):
            started_s = time.perf_counter()
            call()
            least[index] = min(least[index], time.perf_counter() - started_s)
    return [value * 1e6 for value in least]


@torch.inference_mode()
def measure(context_tokens: int, num_runs: int, cache: KvCache) -> dict[str, float]:
    """One row of the table."""
    query = torch.randn(1, HEADS, 1, HEAD_DIM)
    key = torch.randn(1, KV_HEADS, 1, HEAD_DIM)
    layout = layout_of(context_tokens, num_runs)
    layers = iter(range(10**9))

    def call(context: PackedContext) -> object:
        module = SimpleNamespace(layer_idx=next(layers) % NUM_LAYERS)
        paged = PagedKv(cache, 0, context)
        return attention.paged_attention(
            module, query, key, key, None, scaling=0.125, paged_kv=paged
        )

    contexts = [packed(layout, in_place=True), packed(layout, in_place=False)]
    in_place_us, gathered_us = least_us([lambda c=c: call(c) for c in contexts])  # type: ignore[misc]
    return {
        "context_tokens": context_tokens,
        "num_runs": num_runs,
        "in_place_us": round(in_place_us, 1),
        "gathered_us": round(gathered_us, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cache = KvCache(
        num_layers=NUM_LAYERS, num_kv_heads=KV_HEADS, num_positions=NUM_BLOCKS * BLOCK_TOKENS,
        head_dim=HEAD_DIM, dtype=torch.float32, device=torch.device("cpu"),
    )  # fmt: skip
    rows = [
        measure(context_tokens, num_runs, cache)
        for context_tokens in (128, 512, 2048)
        for num_runs in (1, 2, 4, 8)
    ]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'context':>8}{'runs':>6}{'in place us':>13}{'gathered us':>13}{'ratio':>7}")
    for row in rows:
        ratio = row["gathered_us"] / row["in_place_us"]
        print(
            f"{row['context_tokens']:>8.0f}{row['num_runs']:>6.0f}{row['in_place_us']:>13.1f}"
            f"{row['gathered_us']:>13.1f}{ratio:>7.1f}"
        )


if __name__ == "__main__":
    main()
