"""How a model lies on devices: layers to stages, each stage over one or more devices."""

from dataclasses import dataclass

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.partition import LayerCosts, LayerPartition, balanced_partition
from pipelineserve_simulator.hardware.description import HardwareProfile, ModelShape


@dataclass(frozen=True, slots=True)
class Layout:
    """One replica of a model.

    Attributes:
        partition: layers to stages.
        tensor_parallel: devices of each stage, at least 1.

    Raises:
        InvalidInputError: a stage has no device.
    """

    partition: LayerPartition
    tensor_parallel: int = 1

    def __post_init__(self) -> None:
        if self.tensor_parallel < 1:
            fault = Fault("tensorParallel", f"expected at least 1, got {self.tensor_parallel}")
            raise InvalidInputError("the layout of the model", [fault])

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline."""
        return self.partition.num_stages

    @property
    def num_devices(self) -> int:
        """Devices of one replica."""
        return self.num_stages * self.tensor_parallel


def even_layout(model: ModelShape, num_stages: int, tensor_parallel: int = 1) -> Layout:
    """Give every stage the same number of layers, the first ones one more where that must be.

    Raises:
        InvalidInputError: there are fewer layers than stages.
    """
    costs = LayerCosts(layer=1.0, embedding=0.0, head=0.0)
    return Layout(balanced_partition(model.num_layers, num_stages, costs), tensor_parallel)


@dataclass(frozen=True, slots=True)
class StageMemory:
    """What one device of a stage holds.

    Attributes:
        usable_bytes: for weights and KV together.
        weights_bytes: layers, and embedding or head where they lie.
        kv_bytes_per_token: keys and values of one token in the stage's layers.
    """

    usable_bytes: int
    weights_bytes: float
    kv_bytes_per_token: float

    @property
    def room_tokens(self) -> int:
        """Tokens whose keys and values fit beside the weights; negative where these do not fit."""
        return int((self.usable_bytes - self.weights_bytes) / self.kv_bytes_per_token)


def stage_memories(profile: HardwareProfile, layout: Layout) -> tuple[StageMemory, ...]:
    """What a device of each stage holds."""
    model, shards = profile.model, layout.tensor_parallel
    last = layout.num_stages - 1
    memories: list[StageMemory] = []
    for stage_index, num_layers in enumerate(layout.partition.layers_per_stage):
        ends = (stage_index == 0) + (stage_index == last)
        weights = (num_layers * model.layer_bytes + ends * model.embedding_bytes) / shards
        kv_bytes = num_layers * model.kv_bytes_per_layer_token / shards
        memories.append(StageMemory(profile.memory.usable_bytes, weights, kv_bytes))
    return tuple(memories)


def stage_kv_tokens(profile: HardwareProfile, layout: Layout) -> tuple[int, ...]:
    """Tokens whose keys and values each stage has room for beside its weights.

    Raises:
        InvalidInputError: the weights of a stage leave room for none.
    """
    rooms = tuple(memory.room_tokens for memory in stage_memories(profile, layout))
    faults = [
        Fault(f"layersPerStage[{index}]", f"its weights leave no room for KV on {profile.device}")
        for index, room in enumerate(rooms)
        if room < 1
    ]
    if faults:
        raise InvalidInputError("the layout of the model", faults)
    return rooms


def kv_tokens(profile: HardwareProfile, layout: Layout) -> int:
    """Tokens in the pool of a published run: the mean of what the first two ranks found.

    SGLang 0.4.1 as FastPP runs it takes that mean, although the last stage has the head as well.
    """
    first = stage_kv_tokens(profile, layout)[:2]
    return sum(first) // len(first)
