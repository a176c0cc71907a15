"""What follows from settings, model and machine, before anything starts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.errors import InvalidInputError
from pipelineserve_engine.model_config import ModelShape
from pipelineserve_engine.plan import Machine, PipelinePlan, make_plan, this_machine
from pipelineserve_engine.settings import EngineSettings
from pipelineserve_engine.transport.link_settings import TransportKind

MIB = 1 << 20
# Keys and values of one token in all six layers, at 4 bytes.
BYTES_PER_TOKEN = 2 * 6 * 2 * 16 * 4


def a_shape(*, num_layers: int = 6, max_context_tokens: int = 1024) -> ModelShape:
    return ModelShape(
        num_layers=num_layers,
        hidden_size=64,
        num_kv_heads=2,
        head_dim=16,
        vocabulary_size=4000,
        intermediate_size=128,
        num_heads=4,
        max_context_tokens=max_context_tokens,
        has_tied_head=True,
    )


def a_plan(
    *,
    stages: int = 2,
    layers_per_stage: str = "",
    dtype: str = "float32",
    max_context_tokens: int = 0,
    kv_tokens: int = 0,
    kv_swap_tokens: int = -1,
    block_tokens: int = 16,
    threads_per_stage: int = 0,
    num_cores: int = 8,
    free_bytes: int = 1024 * MIB,
    model_context_tokens: int = 1024,
    transport: str = "auto",
    stage_addresses: str = "",
) -> PipelinePlan:
    """`free_bytes` is what the weights leave."""
    settings = EngineSettings(
        model_folder=Path("model"),
        served_name="m",
        stages=stages,
        layers_per_stage=layers_per_stage,
        dtype=dtype,
        max_context_tokens=max_context_tokens,
        kv_tokens=kv_tokens,
        kv_swap_tokens=kv_swap_tokens,
        block_tokens=block_tokens,
        threads_per_stage=threads_per_stage,
        transport=transport,
        stage_addresses=stage_addresses,
        leader_address="leader" if stage_addresses else "",
        leader_port=7600 if stage_addresses else 0,
        group_key_file="key" if stage_addresses else "",
    )
    shape = a_shape(max_context_tokens=model_context_tokens)
    weight_bytes = shape.weight_bytes(stages, getattr(torch, dtype))
    return make_plan(settings, shape, Machine(num_cores, weight_bytes + free_bytes))


def test_a_given_partition_is_taken_as_it_is() -> None:
    plan = a_plan(stages=3, layers_per_stage="1,4,1")
    assert plan.partition.layers_per_stage == (1, 4, 1)
    assert plan.num_stages == plan.num_slots == 3


def test_without_one_the_last_stage_has_fewer_layers_because_of_the_head() -> None:
    first, last = a_plan(stages=2).partition.layers_per_stage
    assert first + last == 6
    assert first > last


@pytest.mark.parametrize(
    ("layers_per_stage", "message"),
    [
        ("3,x", "layers_per_stage: expected whole numbers like 9,10,11, got 3,x"),
        ("3,", "layers_per_stage: expected whole numbers"),
        ("2,2,2", "layers_per_stage: expected one entry for each of 2 stages, got 3"),
        ("3,4", "layers_per_stage: sums up to 7 layers, but the model has 6; change the entries"),
        ("6,0", r"layers_per_stage\[1\]: expected at least 1 layer, got 0"),
        ("7,-1", r"layers_per_stage\[1\]: expected at least 1 layer, got -1"),
    ],
)
def test_names_the_field_when_a_partition_is_wrong(layers_per_stage: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        a_plan(stages=2, layers_per_stage=layers_per_stage)


def test_names_the_field_when_there_are_more_stages_than_layers() -> None:
    with pytest.raises(InvalidInputError, match=r"stages: expected 1 to 6 .*, got 7"):
        a_plan(stages=7)


@pytest.mark.parametrize(
    ("num_cores", "stages", "asked", "expected"),
    [(8, 2, 0, 4), (7, 2, 0, 3), (2, 4, 0, 1), (2, 4, 5, 5)],
    ids=["divided", "rounded down", "at least one", "as asked"],
)
def test_threads_of_each_stage(num_cores: int, stages: int, asked: int, expected: int) -> None:
    plan = a_plan(num_cores=num_cores, stages=stages, threads_per_stage=asked)
    assert plan.threads_per_stage == expected


def test_the_context_is_the_models_own_unless_a_shorter_one_is_asked_for() -> None:
    assert a_plan().max_context_tokens == 1024
    assert a_plan(max_context_tokens=100).max_context_tokens == 100


def test_names_the_field_when_the_context_is_above_the_models() -> None:
    message = "max_context_tokens: expected at most the model's own 1024, got 1025; lower it"
    with pytest.raises(InvalidInputError, match=message):
        a_plan(max_context_tokens=1025)


def test_the_pool_holds_sixteen_contexts_where_memory_allows() -> None:
    assert a_plan(max_context_tokens=256).num_blocks == 16 * 256 // 16


def test_the_pool_takes_a_quarter_of_free_memory_where_it_does_not() -> None:
    plan = a_plan(free_bytes=4 * 1600 * BYTES_PER_TOKEN)
    assert plan.num_blocks == 1600 // 16


def test_smaller_numbers_take_half_the_memory() -> None:
    free = 4 * 1600 * BYTES_PER_TOKEN
    assert a_plan(free_bytes=free, dtype="bfloat16").num_blocks == 3200 // 16


def test_a_pool_that_was_asked_for_is_not_cut_to_a_quarter() -> None:
    plan = a_plan(kv_tokens=1600, free_bytes=1600 * BYTES_PER_TOKEN)
    assert plan.num_blocks == 100


def test_one_full_context_may_take_half_the_memory() -> None:
    free = 2 * 1024 * BYTES_PER_TOKEN
    assert a_plan(free_bytes=free).num_blocks == 1024 // 16
    assert a_plan(free_bytes=free, model_context_tokens=4096).num_blocks == 1024 // 16


def test_the_host_pool_is_as_large_as_the_pool_where_memory_allows() -> None:
    plan = a_plan(max_context_tokens=256)
    assert plan.num_host_blocks == plan.num_blocks


def test_the_host_pool_takes_an_eighth_of_free_memory_where_it_does_not() -> None:
    assert a_plan(free_bytes=8 * 800 * BYTES_PER_TOKEN).num_host_blocks == 800 // 16


def test_the_host_pool_takes_what_a_pool_that_was_asked_for_leaves() -> None:
    plan = a_plan(kv_tokens=1600, free_bytes=1632 * BYTES_PER_TOKEN)
    assert (plan.num_blocks, plan.num_host_blocks) == (100, 2)


@pytest.mark.parametrize(("asked", "expected"), [(0, 0), (480, 30)])
def test_a_host_pool_that_was_asked_for_is_taken_as_it_is(asked: int, expected: int) -> None:
    assert a_plan(kv_swap_tokens=asked).num_host_blocks == expected


def test_names_the_field_when_the_host_pool_does_not_fit_beside_the_pool() -> None:
    message = "kv_swap_tokens: 1000 tokens take 1 MiB, but 0 MiB are free; lower it"
    with pytest.raises(InvalidInputError, match=message):
        a_plan(kv_tokens=1600, kv_swap_tokens=1000, free_bytes=1700 * BYTES_PER_TOKEN)


def test_names_the_model_when_its_weights_alone_take_more_than_is_free() -> None:
    with pytest.raises(InvalidInputError, match="model_folder: the weights take 2 MiB in float32"):
        a_plan(free_bytes=-1)


def test_names_the_field_when_nothing_is_left_for_a_single_block() -> None:
    with pytest.raises(InvalidInputError, match="kv_tokens: 16 tokens take 0 MiB, but 0 MiB are"):
        a_plan(free_bytes=15 * BYTES_PER_TOKEN)


def test_names_the_field_when_a_pool_takes_more_than_is_free() -> None:
    with pytest.raises(InvalidInputError) as refused:
        a_plan(kv_tokens=1 << 20, free_bytes=1024 * MIB)
    assert "kv_tokens: 1048576 tokens take 1536 MiB, but 1024 MiB are free; lower it" in str(
        refused.value
    )


@given(
    kv_tokens=st.integers(0, 100_000),
    kv_swap_tokens=st.integers(-1, 100_000),
    block_tokens=st.integers(1, 64),
    free_bytes=st.integers(200_000 * BYTES_PER_TOKEN, 1 << 34),
    stages=st.integers(1, 6),
)
def test_any_plan_has_all_layers_and_a_pool_within_memory(
    kv_tokens: int, kv_swap_tokens: int, block_tokens: int, free_bytes: int, stages: int
) -> None:
    plan = a_plan(
        kv_tokens=kv_tokens,
        kv_swap_tokens=kv_swap_tokens,
        block_tokens=block_tokens,
        free_bytes=free_bytes,
        stages=stages,
    )
    assert plan.partition.num_layers == 6
    assert plan.num_blocks >= 1
    num_tokens = (plan.num_blocks + plan.num_host_blocks) * block_tokens
    assert num_tokens * BYTES_PER_TOKEN <= free_bytes
    if kv_tokens >= block_tokens:
        assert kv_tokens - block_tokens < plan.num_blocks * block_tokens <= kv_tokens


# SmolLM2-135M's own sizes.
SMOLLM2 = ModelShape(
    num_layers=30,
    hidden_size=576,
    num_kv_heads=3,
    head_dim=64,
    vocabulary_size=49152,
    intermediate_size=1536,
    num_heads=9,
    max_context_tokens=8192,
    has_tied_head=True,
)


@pytest.mark.parametrize(("free_mib", "is_whole"), [(2048, True), (1600, True), (1200, False)])
def test_smollm2_gets_its_full_context_where_memory_allows(free_mib: int, is_whole: bool) -> None:
    """626 MiB of weights in two stages; a full context takes 360 MiB, at most half of the rest."""
    settings = EngineSettings(model_folder=Path("model"), served_name="m", stages=2)
    plan = make_plan(settings, SMOLLM2, Machine(2, free_mib * MIB))
    assert plan.max_context_tokens == 8192
    assert (plan.num_blocks * plan.block_tokens >= 8192) is is_whole


def test_this_machine_has_cores_and_memory() -> None:
    machine = this_machine()
    assert machine.num_cores >= 1
    assert machine.free_memory_bytes > 64 * MIB


def test_stages_of_one_host_share_memory_and_those_of_several_do_not() -> None:
    assert a_plan().links.kind is TransportKind.SHARED_MEMORY
    assert a_plan(transport="gloo").links.kind is TransportKind.GLOO
    assert a_plan(stage_addresses="a,b").links.kind is TransportKind.GLOO


def test_shared_memory_between_hosts_is_refused_with_advice() -> None:
    with pytest.raises(InvalidInputError, match="transport: shared_memory joins stages of one"):
        a_plan(transport="shared_memory", stage_addresses="a,b")


def test_nccl_without_a_gpu_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    with pytest.raises(InvalidInputError, match="nccl needs a build of torch with NCCL"):
        a_plan(transport="nccl")
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InvalidInputError, match="nccl needs a GPU, and CUDA finds none"):
        a_plan(transport="nccl")


def let_nccl_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_a_pool_on_gpus_must_be_given_and_is_not_measured_against_the_hosts_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_nccl_be_there(monkeypatch)
    with pytest.raises(InvalidInputError, match="kv_tokens: needed with transport nccl, since"):
        a_plan(transport="nccl")
    plan = a_plan(transport="nccl", kv_tokens=16_000, free_bytes=8 * 800 * BYTES_PER_TOKEN)
    assert (plan.num_blocks, plan.num_host_blocks) == (1000, 800 // 16)


def test_the_host_pool_beside_gpus_may_take_all_of_the_hosts_memory_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_nccl_be_there(monkeypatch)
    free = 1600 * BYTES_PER_TOKEN
    given: dict[str, Any] = {"transport": "nccl", "kv_tokens": 16_000, "free_bytes": free}
    assert a_plan(**given, kv_swap_tokens=1600).num_host_blocks == 100
    with pytest.raises(InvalidInputError, match="kv_swap_tokens: 1601 tokens take"):
        a_plan(**given, kv_swap_tokens=1601)


def test_nccl_gives_every_stage_a_gpu_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    let_nccl_be_there(monkeypatch)
    here = a_plan(stages=3, transport="nccl", kv_tokens=1600)
    apart = a_plan(stages=4, transport="nccl", kv_tokens=1600, stage_addresses="a,b,a,b")
    assert [here.device_of(index) for index in range(3)] == ["cuda:0", "cuda:1", "cuda:2"]
    assert [apart.device_of(index) for index in range(4)] == [
        *("cuda:0", "cuda:0", "cuda:1", "cuda:1")
    ]
    assert a_plan().device_of(1) == "cpu"


def test_links_hold_every_micro_batch_in_flight_and_one_more() -> None:
    ring = a_plan(stages=2).links.ring
    assert (ring.num_places, ring.place_tokens) == (3, 2048)
    assert ring.num_bytes == 3 * 2048 * 64 * 4


def test_links_that_do_not_fit_into_memory_are_refused_with_advice() -> None:
    with pytest.raises(InvalidInputError, match="max_chunk_tokens: micro-batches of 2048 tokens"):
        a_plan(kv_tokens=16, free_bytes=MIB)
    a_plan(kv_tokens=16, free_bytes=MIB, transport="gloo")


def test_cores_are_divided_among_the_stages_of_one_host() -> None:
    assert a_plan(stages=4).threads_per_stage == 2
    assert a_plan(stages=4, stage_addresses="a,b,c,a").threads_per_stage == 4
    assert a_plan(stages=2, stage_addresses="a,b").threads_per_stage == 8
