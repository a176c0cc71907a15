"""Every partition is complete, disjoint and in order; the balanced one is the best there is."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.errors import InvalidInputError
from pipelineserve.partition import (
    LayerCosts,
    LayerPartition,
    balanced_partition,
    given_partition,
)

costs = st.builds(
    LayerCosts,
    layer=st.floats(0.1, 10.0),
    embedding=st.floats(0.0, 30.0),
    head=st.floats(0.0, 30.0),
)


def dearest_stage(partition: LayerPartition, costs: LayerCosts) -> float:
    stage_costs = [count * costs.layer for count in partition.layers_per_stage]
    stage_costs[0] += costs.embedding
    stage_costs[-1] += costs.head
    return max(stage_costs)


@given(num_stages=st.integers(1, 64), extra_layers=st.integers(0, 64), costs=costs)
def test_every_layer_is_on_exactly_one_stage_in_order(
    num_stages: int, extra_layers: int, costs: LayerCosts
) -> None:
    partition = balanced_partition(num_stages + extra_layers, num_stages, costs)
    layers = [index for stage in partition for index in stage]
    assert layers == list(range(num_stages + extra_layers))
    assert all(len(stage) >= 1 for stage in partition)


@given(num_layers=st.integers(3, 9), num_stages=st.integers(1, 3), costs=costs)
def test_no_partition_has_a_cheaper_dearest_stage(
    num_layers: int, num_stages: int, costs: LayerCosts
) -> None:
    best = min(
        dearest_stage(LayerPartition(counts), costs)
        for counts in product(range(1, num_layers + 1), repeat=num_stages)
        if sum(counts) == num_layers
    )
    balanced = balanced_partition(num_layers, num_stages, costs)
    assert dearest_stage(balanced, costs) == pytest.approx(best)


def test_a_heavy_head_leaves_the_last_stage_fewer_layers() -> None:
    partition = balanced_partition(10, 2, LayerCosts(layer=1.0, embedding=0.0, head=4.0))
    assert partition.layers_per_stage == (7, 3)


def test_a_given_partition_must_sum_up_to_the_models_layers() -> None:
    with pytest.raises(InvalidInputError, match="sums up to 9 layers, but the model has 10"):
        given_partition((4, 5), 10)
    assert given_partition((4, 6), 10).layers_of(1) == range(4, 10)


def test_a_stage_without_layers_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"layersPerStage\[1\]: expected at least 1"):
        given_partition((10, 0), 10)


@pytest.mark.parametrize("num_stages", [0, 11])
def test_more_stages_than_layers_are_refused(num_stages: int) -> None:
    with pytest.raises(InvalidInputError, match="expected 1 to 10"):
        balanced_partition(10, num_stages, LayerCosts(1.0, 0.0, 0.0))
