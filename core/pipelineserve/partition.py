"""Layers to stages: complete, disjoint, in order; given by the user or balanced by cost."""

from collections.abc import Iterator
from dataclasses import dataclass

from pipelineserve.errors import Fault, InvalidInputError


@dataclass(frozen=True, slots=True)
class LayerPartition:
    """How many consecutive layers each stage holds, first stage first.

    Raises:
        InvalidInputError: a stage has no layer.
    """

    layers_per_stage: tuple[int, ...]

    def __post_init__(self) -> None:
        faults = [
            Fault(f"layersPerStage[{index}]", f"expected at least 1 layer, got {count}")
            for index, count in enumerate(self.layers_per_stage)
            if count < 1
        ]
        if not self.layers_per_stage:
            faults = [Fault("layersPerStage", "expected at least one stage, got none")]
        if faults:
            raise InvalidInputError("the partition of layers to stages", faults)

    @property
    def num_stages(self) -> int:
        """Stages that the layers are spread over."""
        return len(self.layers_per_stage)

    @property
    def num_layers(self) -> int:
        """Layers of all stages together."""
        return sum(self.layers_per_stage)

    def layers_of(self, stage_index: int) -> range:
        """Indices of the layers of one stage."""
        first = sum(self.layers_per_stage[:stage_index])
        return range(first, first + self.layers_per_stage[stage_index])

    def __iter__(self) -> Iterator[range]:
        return (self.layers_of(stage_index) for stage_index in range(self.num_stages))


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """Cost of one micro-batch in one layer, in the embedding and in the head; one unit for all."""

    layer: float
    embedding: float
    head: float


def given_partition(layers_per_stage: tuple[int, ...], num_layers: int) -> LayerPartition:
    """Check a partition that the user gave against the model.

    Raises:
        InvalidInputError: the layers do not sum up to the model's.
    """
    partition = LayerPartition(layers_per_stage)
    if partition.num_layers != num_layers:
        message = (
            f"sums up to {partition.num_layers} layers, but the model has {num_layers}; "
            f"change the entries so that they sum up to {num_layers}"
        )
        raise InvalidInputError(
            "the partition of layers to stages", [Fault("layersPerStage", message)]
        )
    return partition


def balanced_partition(num_layers: int, num_stages: int, costs: LayerCosts) -> LayerPartition:
    """Minimise the cost of the dearest stage.

    Gives each next layer to the cheapest stage, which is optimal because all layers cost the same;
    of equally cheap stages the first one gets it.

    Raises:
        InvalidInputError: there are fewer layers than stages.
    """
    if not 1 <= num_stages <= num_layers:
        message = f"expected 1 to {num_layers} (the model's layers), got {num_stages}"
        raise InvalidInputError("the number of stages", [Fault("stages", message)])
    counts = [1] * num_stages
    stage_costs = [costs.layer] * num_stages
    stage_costs[0] += costs.embedding
    stage_costs[-1] += costs.head
    for _ in range(num_layers - num_stages):
        cheapest = min(range(num_stages), key=stage_costs.__getitem__)
        counts[cheapest] += 1
        stage_costs[cheapest] += costs.layer
    return LayerPartition(tuple(counts))
