"""Blocks that leave the cache come back as they were."""

from itertools import count

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.scheduler.messages import BlockCopy, CopyDirection
from pipelineserve_engine.kv_cache import HostPoolShape, KvCache
from pipelineserve_engine.stage_messages import pack_copies, unpack_copies

BLOCK_TOKENS = 4
NUM_BLOCKS = 6
NUM_HOST_BLOCKS = 5

COPIES = st.lists(
    st.builds(
        BlockCopy,
        direction=st.sampled_from(CopyDirection),
        device_block_id=st.integers(0, NUM_BLOCKS - 1),
        host_block_id=st.integers(0, NUM_HOST_BLOCKS - 1),
    ),
    max_size=30,
)


def a_cache(
    *, num_host_blocks: int = NUM_HOST_BLOCKS, dtype: torch.dtype = torch.float32
) -> KvCache:
    return KvCache(
        num_layers=2, num_kv_heads=3, num_positions=NUM_BLOCKS * BLOCK_TOKENS, head_dim=8,
        dtype=dtype, device=torch.device("cpu"),
        host_pool=HostPoolShape(num_host_blocks, BLOCK_TOKENS),
    )  # fmt: skip


def fill(cache: KvCache, block_id: int, value: float) -> None:
    """Give every layer's keys and values of a block their own content."""
    cells = slice(block_id * BLOCK_TOKENS, (block_id + 1) * BLOCK_TOKENS)
    for layer_index in range(2):
        for part, tensor in enumerate(cache.layer(layer_index)):
            content = torch.arange(tensor[:, cells].numel()).reshape(tensor[:, cells].shape)
            tensor[:, cells] = content + value * 1000 + layer_index * 300 + part * 150


def content(cache: KvCache, block_id: int) -> torch.Tensor:
    cells = slice(block_id * BLOCK_TOKENS, (block_id + 1) * BLOCK_TOKENS)
    return torch.stack([t[:, cells] for layer in range(2) for t in cache.layer(layer)]).clone()


@given(COPIES)
def test_copies_have_the_outcome_of_one_after_the_other(copies: list[BlockCopy]) -> None:
    cache = a_cache()
    blank = torch.full_like(content(cache, 0), -1.0)
    cache._host.fill_(-1.0)
    device = []
    for block_id in range(NUM_BLOCKS):
        fill(cache, block_id, block_id)
        device.append(content(cache, block_id))
    host = [blank] * NUM_HOST_BLOCKS
    for copy in copies:
        if copy.direction is CopyDirection.OUT:
            host[copy.host_block_id] = device[copy.device_block_id]
        else:
            device[copy.device_block_id] = host[copy.host_block_id]
    cache.copy_blocks(copies)
    for block_id in range(NUM_BLOCKS):
        assert torch.equal(content(cache, block_id), device[block_id])


def test_a_host_block_that_is_written_twice_keeps_what_came_last() -> None:
    cache = a_cache()
    for block_id in range(NUM_BLOCKS):
        fill(cache, block_id, block_id)
    last = content(cache, 2)
    outs = [BlockCopy(CopyDirection.OUT, block_id, 0) for block_id in (1, 3, 2)]
    cache.copy_blocks([*outs, BlockCopy(CopyDirection.IN, 5, 0)])
    assert torch.equal(content(cache, 5), last)


@given(COPIES)
def test_copies_travel_as_they_are(copies: list[BlockCopy]) -> None:
    packed = pack_copies(copies)
    assert list(unpack_copies(packed)) == copies
    assert len(packed) == 12 * len(copies)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_way_of_one_block_is_what_the_clock_says(dtype: torch.dtype) -> None:
    ticks = count()
    measured_s = a_cache(dtype=dtype).measure_copy_s(lambda: float(next(ticks)))
    assert measured_s == pytest.approx(1.0 / (2 * NUM_HOST_BLOCKS))


def test_without_host_blocks_nothing_is_measured() -> None:
    assert a_cache(num_host_blocks=0).measure_copy_s(lambda: pytest.fail("timed")) == 0.0


def test_host_blocks_are_not_counted_as_cache() -> None:
    assert a_cache().num_bytes == a_cache(num_host_blocks=0).num_bytes == 2 * 2 * 3 * 24 * 8 * 4
