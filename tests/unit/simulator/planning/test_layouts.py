"""Which layouts there are, and which of them hold the model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_simulator.hardware.catalogue import load_profile
from pipelineserve_simulator.planning.layouts import Placed, Refused, Shape, place, shapes_for
from pipelineserve_simulator.planning.models import find_model
from plan_questions import LLAMA_70B, QWEN_HALF_B, model_of, question

PROFILE = load_profile("a100-40gb-pcie/qwen2.5-32b")
QWEN_32B = find_model("Qwen2.5-32B")


@given(st.integers(1, 64))
def test_every_shape_fits_on_the_devices_and_none_comes_twice(num_devices: int) -> None:
    shapes = list(shapes_for(num_devices))
    assert len(set(shapes)) == len(shapes)
    assert all(1 <= shape.num_devices <= num_devices for shape in shapes)
    assert {Shape(1, stages) for stages in range(1, num_devices + 1)} <= set(shapes)


def test_four_devices_have_eight_shapes_with_shards_in_powers_of_two() -> None:
    found = {(shape.tensor_parallel, shape.num_stages) for shape in shapes_for(4)}
    assert found == {(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (4, 1)}


def test_shards_stay_within_a_host() -> None:
    assert max(shape.tensor_parallel for shape in shapes_for(64)) == 8


def test_the_pool_is_what_the_fullest_stage_has_room_for() -> None:
    placed = place(Shape(1, 4), QWEN_32B, PROFILE, 1000)
    assert isinstance(placed, Placed)
    rooms = [memory.room_tokens for memory in placed.memories]
    assert placed.pool_tokens == rooms[0] == rooms[-1] < rooms[1]


def test_stages_and_shards_share_the_weights() -> None:
    in_stages, in_shards = (
        place(shape, QWEN_32B, PROFILE, 1000) for shape in (Shape(1, 4), Shape(4, 1))
    )
    assert isinstance(in_stages, Placed)
    assert isinstance(in_shards, Placed)
    stage_bytes = sum(memory.weights_bytes for memory in in_stages.memories)
    assert stage_bytes == pytest.approx(4 * in_shards.memories[0].weights_bytes)


def why_not(shape: Shape, needed_tokens: int = 1000) -> str:
    refused = place(shape, QWEN_32B, PROFILE, needed_tokens)
    assert isinstance(refused, Refused)
    return refused.why


def test_weights_that_do_not_fit_are_told_in_numbers() -> None:
    assert why_not(Shape(1, 1)) == "stage 0: weights of 61.0 GiB per GPU, but only 35.5 GiB usable"


def test_a_request_that_does_not_fit_beside_the_weights_is_told_in_numbers() -> None:
    why = why_not(Shape(1, 4), needed_tokens=400_000)
    assert why.startswith("stage 0: beside weights of 16.0 GiB per GPU, 35.5 GiB usable hold KV of")
    assert "the longest request has 400,000 (24.4 GiB)" in why


def test_more_stages_than_layers_are_refused() -> None:
    assert why_not(Shape(1, 65)) == "65 stages, but the model has only 64 layers"


def test_heads_that_cannot_be_shared_evenly_are_refused() -> None:
    small = question(model=model_of(QWEN_HALF_B))
    refused = place(Shape(4, 1), small.model, small.machine.profile, 1000)
    assert isinstance(refused, Refused)
    assert "4 devices cannot share 14 query heads and 2 KV heads" in refused.why


def test_70_billion_weights_in_16_bits_leave_four_devices_of_40_gb_next_to_nothing() -> None:
    large = question(model=model_of(LLAMA_70B))
    profile = large.machine.profile
    for shape in (Shape(1, 2), Shape(1, 3), Shape(2, 1)):
        assert isinstance(place(shape, large.model, profile, 1), Refused)
    for shape in (Shape(1, 4), Shape(2, 2), Shape(4, 1)):
        placed = place(shape, large.model, profile, 1)
        assert isinstance(placed, Placed)
        # 32.9 to 33.8 of 35.5 GiB are weights.
        assert placed.memories[0].weights_bytes > 0.92 * profile.memory.usable_bytes
        assert placed.pool_tokens < 40_000
