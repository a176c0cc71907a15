"""Sizes that are derived from a config before anything is loaded."""

from collections.abc import Callable

import pytest
import torch

from pipelineserve.partition import balanced_partition
from pipelineserve_engine.model_config import load_config, shape_of
from pipelineserve_engine.stage_model import StageModel, StageShape
from tiny_models import Architecture, TinyModel

MakeModel = Callable[[Architecture, bool], TinyModel]


@pytest.mark.parametrize("architecture", Architecture)
@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("num_stages", [1, 2, 3])
def test_weights_take_what_was_reckoned_but_for_small_biases(
    tiny_model: MakeModel, architecture: Architecture, is_tied: bool, num_stages: int
) -> None:
    folder = tiny_model(architecture, is_tied).folder
    shape = shape_of(load_config(folder))
    partition = balanced_partition(shape.num_layers, num_stages, shape.costs)
    loaded = sum(
        StageModel(
            folder,
            StageShape(
                first_layer_index=layers.start,
                num_layers=len(layers),
                is_first=stage_index == 0,
                is_last=stage_index == num_stages - 1,
                num_kv_positions=16,
                dtype=torch.float32,
                device=torch.device("cpu"),
            ),
        ).weight_bytes
        for stage_index, layers in enumerate(partition)
    )
    assert shape.weight_bytes(num_stages, torch.float32) == pytest.approx(loaded, rel=0.01)
    assert shape.weight_bytes(num_stages, torch.bfloat16) == pytest.approx(loaded / 2, rel=0.01)
