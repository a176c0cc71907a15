"""The plan of one pipeline: what follows from settings, model and machine; nothing starts yet."""

from dataclasses import dataclass, field
from pathlib import Path

import torch

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.partition import LayerPartition, balanced_partition, given_partition
from pipelineserve_engine.machine import free_memory_bytes, usable_cores
from pipelineserve_engine.model_config import ModelShape
from pipelineserve_engine.settings import AUTOMATIC, EngineSettings
from pipelineserve_engine.watchdog import Patience

# Full contexts that the pool holds where memory allows; more would only serve the prefix cache.
_KV_CONTEXTS = 16
_KV_MEMORY_RATIO = 0.25
_ONE_CONTEXT_MEMORY_RATIO = 0.5
_SWAP_MEMORY_RATIO = 0.125


@dataclass(frozen=True, slots=True)
class Machine:
    """What the plan needs to know of the machine."""

    num_cores: int
    free_memory_bytes: int


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """What every stage of one pipeline is started with; derived, never edited."""

    model_folder: Path
    partition: LayerPartition
    num_slots: int
    num_blocks: int
    block_tokens: int
    max_context_tokens: int
    dtype: str
    threads_per_stage: int
    num_host_blocks: int = 0
    patience: Patience = field(default_factory=Patience)

    @property
    def num_stages(self) -> int:
        """Processes of the pipeline."""
        return self.partition.num_stages


def this_machine() -> Machine:
    """Cores that this process may use, and memory that is free now."""
    return Machine(num_cores=usable_cores(), free_memory_bytes=free_memory_bytes())


def make_plan(settings: EngineSettings, shape: ModelShape, machine: Machine) -> PipelinePlan:
    """Derive the plan.

    Raises:
        InvalidInputError: settings that do not go with the model or the machine.
    """
    context = settings.max_context_tokens or shape.max_context_tokens
    if context > shape.max_context_tokens:
        message = f"expected at most the model's own {shape.max_context_tokens}, got {context}"
        raise InvalidInputError(
            "the engine's configuration", [Fault("max_context_tokens", f"{message}; lower it")]
        )
    partition = _partition(settings, shape)
    num_blocks, num_host_blocks = _pool_sizes(settings, shape, machine, context)
    return PipelinePlan(
        model_folder=settings.model_folder,
        partition=partition,
        num_slots=partition.num_stages + settings.extra_slots,
        num_blocks=num_blocks,
        num_host_blocks=num_host_blocks,
        block_tokens=settings.block_tokens,
        max_context_tokens=context,
        dtype=settings.dtype,
        threads_per_stage=settings.threads_per_stage
        or max(1, machine.num_cores // partition.num_stages),
        patience=Patience(stall_s=float(settings.stall_seconds)),
    )


def _partition(settings: EngineSettings, shape: ModelShape) -> LayerPartition:
    if not settings.layers_per_stage:
        return balanced_partition(shape.num_layers, settings.stages, shape.costs)
    try:
        counts = tuple(int(count) for count in settings.layers_per_stage.split(","))
    except ValueError:
        message = f"expected whole numbers like 9,10,11, got {settings.layers_per_stage}"
        raise InvalidInputError(
            "the engine's configuration", [Fault("layers_per_stage", message)]
        ) from None
    if len(counts) != settings.stages:
        message = f"expected one entry for each of {settings.stages} stages, got {len(counts)}"
        raise InvalidInputError("the engine's configuration", [Fault("layers_per_stage", message)])
    try:
        return given_partition(counts, shape.num_layers)
    except InvalidInputError as error:
        raise InvalidInputError(
            "the engine's configuration", [_as_flag_fault(fault) for fault in error.faults]
        ) from None


def _as_flag_fault(fault: Fault) -> Fault:
    """The same fault under this component's own name for the field."""
    return Fault(fault.field.replace("layersPerStage", "layers_per_stage"), fault.message)


@dataclass(frozen=True, slots=True)
class _Memory:
    """What keys and values may take, in tokens.

    Attributes:
        free_bytes: what the weights of all stages leave; they all run on this machine.
        bytes_per_token: keys and values of one token on all stages together.
    """

    free_bytes: int
    bytes_per_token: int

    def tokens_in(self, ratio: float) -> int:
        """Tokens that a share of the memory holds."""
        return int(self.free_bytes * ratio) // self.bytes_per_token

    def fault(self, field: str, num_tokens: int, num_reserved: int = 0) -> Fault | None:
        """Why so many tokens beside those reserved already do not fit; None if they do."""
        needed_bytes = num_tokens * self.bytes_per_token
        left_bytes = self.free_bytes - num_reserved * self.bytes_per_token
        if needed_bytes <= left_bytes:
            return None
        return Fault(
            field,
            f"{num_tokens} tokens take {needed_bytes >> 20} MiB, "
            f"but {max(0, left_bytes) >> 20} MiB are free; lower it",
        )


def _memory(settings: EngineSettings, shape: ModelShape, machine: Machine) -> _Memory:
    dtype: torch.dtype = getattr(torch, settings.dtype)
    weight_bytes = shape.weight_bytes(settings.stages, dtype)
    if weight_bytes > machine.free_memory_bytes:
        message = (
            f"the weights take {weight_bytes >> 20} MiB in {settings.dtype}, but "
            f"{machine.free_memory_bytes >> 20} MiB are free; choose a smaller model or dtype"
        )
        raise InvalidInputError("the engine's configuration", [Fault("model_folder", message)])
    return _Memory(
        free_bytes=machine.free_memory_bytes - weight_bytes,
        bytes_per_token=shape.kv_bytes_per_token(shape.num_layers, dtype),
    )


def _kv_tokens(settings: EngineSettings, memory: _Memory, context_tokens: int) -> int:
    """Tokens of the pool: as asked, else several contexts within a share of free memory.

    One context may take a larger share, or the model's longest prompts would be refused.
    """
    if settings.kv_tokens:
        return settings.kv_tokens
    one_context = min(context_tokens, memory.tokens_in(_ONE_CONTEXT_MEMORY_RATIO))
    affordable = max(memory.tokens_in(_KV_MEMORY_RATIO), one_context)
    return min(_KV_CONTEXTS * context_tokens, affordable)


def _kv_swap_tokens(settings: EngineSettings, memory: _Memory, kv_tokens: int) -> int:
    """Tokens of the host pool: as asked, else as many as the pool's within a share of free memory.

    More than the pool's cannot be preempted at once, save for those preempted again and again.
    """
    if settings.kv_swap_tokens != AUTOMATIC:
        return settings.kv_swap_tokens
    left = memory.tokens_in(1.0) - kv_tokens
    return max(0, min(kv_tokens, memory.tokens_in(_SWAP_MEMORY_RATIO), left))


def _pool_sizes(
    settings: EngineSettings, shape: ModelShape, machine: Machine, context_tokens: int
) -> tuple[int, int]:
    """Blocks of the pool and of the host pool."""
    memory = _memory(settings, shape, machine)
    kv_tokens = _kv_tokens(settings, memory, context_tokens)
    swap_tokens = _kv_swap_tokens(settings, memory, kv_tokens)
    faults = [
        memory.fault("kv_tokens", max(kv_tokens, settings.block_tokens)),
        memory.fault("kv_swap_tokens", swap_tokens, num_reserved=kv_tokens),
    ]
    # Only the first: where the pool does not fit, nothing is left for the host pool.
    if first := [fault for fault in faults if fault is not None][:1]:
        raise InvalidInputError("the engine's configuration", first)
    return max(1, kv_tokens // settings.block_tokens), swap_tokens // settings.block_tokens
