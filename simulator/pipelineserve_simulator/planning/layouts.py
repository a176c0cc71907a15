"""Which layouts there are for so many devices, and which of them hold the model."""

from collections.abc import Iterator
from dataclasses import dataclass

from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.hardware.layouts import (
    Layout,
    StageMemory,
    even_layout,
    stage_memories,
)
from pipelineserve_simulator.planning.models import PlannedModel

_GIB = 2**30
# Shards talk in every layer: nobody spreads them over more than the devices of one host.
_MOST_SHARDS = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """How one replica is cut: stages, and devices that share each."""

    tensor_parallel: int
    num_stages: int

    @property
    def num_devices(self) -> int:
        """Devices of one replica."""
        return self.tensor_parallel * self.num_stages

    def __str__(self) -> str:
        return f"TP{self.tensor_parallel} PP{self.num_stages}"


@dataclass(frozen=True, slots=True)
class Placed:
    """A shape that holds the model.

    Attributes:
        memories: what a device of each stage holds.
    """

    shape: Shape
    layout: Layout
    memories: tuple[StageMemory, ...]

    @property
    def pool_tokens(self) -> int:
        """Tokens for which every stage has room."""
        return min(memory.room_tokens for memory in self.memories)


@dataclass(frozen=True, slots=True)
class Refused:
    """A shape that does not do, and why, with the numbers.

    Attributes:
        num_replicas: how many of it; None where the number does not matter.
    """

    shape: Shape
    why: str
    num_replicas: int | None = None


def shapes_for(num_devices: int) -> Iterator[Shape]:
    """All shapes that fit on so many devices; shards are powers of two, up to 8."""
    tensor_parallel = 1
    while tensor_parallel <= min(num_devices, _MOST_SHARDS):
        for num_stages in range(1, num_devices // tensor_parallel + 1):
            yield Shape(tensor_parallel, num_stages)
        tensor_parallel *= 2


def place(
    shape: Shape, model: PlannedModel, profile: HardwareProfile, needed_tokens: int
) -> Placed | Refused:
    """Lay the model out, every stage with as many layers as the others.

    Args:
        shape: stages and shards.
        model: with its heads.
        profile: for the memory of a device.
        needed_tokens: for which there must be KV at least, such as those of the longest request.
    """
    if shape.num_stages > model.shape.num_layers:
        why = f"{shape.num_stages} stages, but the model has only {model.shape.num_layers} layers"
        return Refused(shape, why)
    heads = (model.num_heads, model.num_kv_heads)
    if any(count % shape.tensor_parallel for count in heads):
        why = (
            f"{shape.tensor_parallel} devices cannot share {heads[0]} query heads and {heads[1]} "
            "KV heads evenly"
        )
        return Refused(shape, why)
    layout = even_layout(model.shape, shape.num_stages, shape.tensor_parallel)
    placed = Placed(shape, layout, stage_memories(profile, layout))
    fault = _memory_fault(placed, needed_tokens)
    return placed if fault is None else Refused(shape, fault)


def _memory_fault(placed: Placed, needed_tokens: int) -> str | None:
    for stage_index, memory in enumerate(placed.memories):
        weights, usable = size_text(memory.weights_bytes), size_text(memory.usable_bytes)
        if memory.weights_bytes >= memory.usable_bytes:
            return f"stage {stage_index}: weights of {weights} per GPU, but only {usable} usable"
        if memory.room_tokens < needed_tokens:
            needed = size_text(needed_tokens * memory.kv_bytes_per_token)
            return (
                f"stage {stage_index}: beside weights of {weights} per GPU, {usable} usable hold "
                f"KV of {max(0, memory.room_tokens):,} tokens; the longest request has "
                f"{needed_tokens:,} ({needed})"
            )
    return None


def size_text(num_bytes: float) -> str:
    """A size as people read it."""
    if num_bytes < _GIB:
        return f"{num_bytes / 2**20:.1f} MiB"
    return f"{num_bytes / _GIB:.1f} GiB"
