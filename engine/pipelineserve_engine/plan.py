"""The plan of one pipeline: what follows from settings, model and machine; nothing starts yet."""

from dataclasses import dataclass, field
from pathlib import Path

import torch

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.partition import LayerPartition, balanced_partition, given_partition
from pipelineserve_engine.machine import free_memory_bytes, usable_cores
from pipelineserve_engine.model_config import ModelShape
from pipelineserve_engine.settings import AUTOMATIC, EngineSettings
from pipelineserve_engine.transport.choice import choose_transport
from pipelineserve_engine.transport.link_settings import TransportKind
from pipelineserve_engine.transport.opening import num_places
from pipelineserve_engine.transport.shared_memory import RingShape
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
class LinkPlan:
    """How hidden states get from stage to stage.

    Attributes:
        kind: of the transport.
        ring: of each link; used in shared memory only.
    """

    kind: TransportKind
    ring: RingShape


@dataclass(frozen=True, slots=True)
class OtherHosts:
    """Where stages run that stage hosts start, and where these find the leader.

    Attributes:
        stage_addresses: one per stage; several may share a host.
        leader_address: the leader's own, which the stage hosts can reach.
        leader_port: of its control socket.
        group_key_file: the group's secret.
        group_epoch: of the group.
    """

    stage_addresses: tuple[str, ...]
    leader_address: str
    leader_port: int
    group_key_file: Path
    group_epoch: int = 0


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
    links: LinkPlan
    num_host_blocks: int = 0
    patience: Patience = field(default_factory=Patience)
    other_hosts: OtherHosts | None = None

    @property
    def num_stages(self) -> int:
        """Processes of the pipeline."""
        return self.partition.num_stages

    def device_of(self, stage_index: int) -> str:
        """Torch's name of the device that a stage computes on: NCCL joins GPUs, one per stage."""
        if self.links.kind is not TransportKind.NCCL:
            return "cpu"
        if self.other_hosts is None:
            return f"cuda:{stage_index}"
        addresses = self.other_hosts.stage_addresses
        return f"cuda:{addresses[:stage_index].count(addresses[stage_index])}"


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
    kind = choose_transport(settings.transport, is_one_host=not settings.stage_addresses)
    partition = _partition(settings, shape)
    num_slots = partition.num_stages + settings.extra_slots
    addresses = settings.stage_address_list
    stages_per_host = max(map(addresses.count, addresses), default=partition.num_stages)
    memory = _memory(settings, shape, machine, stages_per_host / partition.num_stages)
    num_blocks, num_host_blocks = _pool_sizes(settings, memory, context, kind)
    return PipelinePlan(
        model_folder=settings.model_folder,
        partition=partition,
        num_slots=num_slots,
        num_blocks=num_blocks,
        num_host_blocks=num_host_blocks,
        block_tokens=settings.block_tokens,
        max_context_tokens=context,
        dtype=settings.dtype,
        threads_per_stage=settings.threads_per_stage
        or max(1, machine.num_cores // stages_per_host),
        links=_links(settings, shape, kind, memory.free_bytes, num_slots),
        patience=Patience(stall_s=float(settings.stall_seconds)),
        other_hosts=_other_hosts(settings),
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


def _other_hosts(settings: EngineSettings) -> OtherHosts | None:
    if not settings.stage_addresses:
        return None
    return OtherHosts(
        stage_addresses=settings.stage_address_list,
        leader_address=settings.leader_address,
        leader_port=settings.leader_port,
        group_key_file=Path(settings.group_key_file),
        group_epoch=settings.group_epoch,
    )


def _links(
    settings: EngineSettings,
    shape: ModelShape,
    kind: TransportKind,
    free_bytes: int,
    num_slots: int,
) -> LinkPlan:
    dtype: torch.dtype = getattr(torch, settings.dtype)
    tokens = settings.max_chunk_tokens
    ring = RingShape(num_places(num_slots), tokens, shape.hidden_size, dtype)
    num_bytes = ring.num_bytes * (settings.stages - 1)
    if kind is TransportKind.SHARED_MEMORY and num_bytes > free_bytes:
        message = (
            f"micro-batches of {tokens} tokens between the stages take {num_bytes >> 20} MiB, "
            f"but {free_bytes >> 20} MiB are free; lower it"
        )
        raise InvalidInputError("the engine's configuration", [Fault("max_chunk_tokens", message)])
    return LinkPlan(kind, ring)


@dataclass(frozen=True, slots=True)
class _Memory:
    """What keys and values may take, in tokens.

    Attributes:
        free_bytes: what the weights of the host's stages leave.
        bytes_per_token: keys and values of one token on the host's stages together.
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


def _memory(
    settings: EngineSettings, shape: ModelShape, machine: Machine, host_ratio: float
) -> _Memory:
    """Memory of the host with most stages, which is taken to be as large as this one.

    Args:
        settings: of the engine.
        shape: of the model.
        machine: this one.
        host_ratio: share of the pipeline's stages that run on that host.

    Raises:
        InvalidInputError: the weights do not fit.
    """
    dtype: torch.dtype = getattr(torch, settings.dtype)
    weight_bytes = round(shape.weight_bytes(settings.stages, dtype) * host_ratio)
    if weight_bytes > machine.free_memory_bytes:
        message = (
            f"the weights take {weight_bytes >> 20} MiB in {settings.dtype}, but "
            f"{machine.free_memory_bytes >> 20} MiB are free; choose a smaller model or dtype"
        )
        raise InvalidInputError("the engine's configuration", [Fault("model_folder", message)])
    return _Memory(
        free_bytes=machine.free_memory_bytes - weight_bytes,
        bytes_per_token=max(
            1, round(shape.kv_bytes_per_token(shape.num_layers, dtype) * host_ratio)
        ),
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


def _kv_swap_tokens(
    settings: EngineSettings, memory: _Memory, kv_tokens: int, num_reserved: int
) -> int:
    """Tokens of the host pool: as asked, else as many as the pool's within a share of free memory.

    More than the pool's cannot be preempted at once, save for those preempted again and again.
    """
    if settings.kv_swap_tokens != AUTOMATIC:
        return settings.kv_swap_tokens
    left = memory.tokens_in(1.0) - num_reserved
    return max(0, min(kv_tokens, memory.tokens_in(_SWAP_MEMORY_RATIO), left))


def _gpu_pool_fault(settings: EngineSettings) -> Fault | None:
    if settings.kv_tokens:
        return None
    return Fault(
        "kv_tokens",
        "needed with transport nccl, since the memory of GPUs is not measured; give the tokens "
        "that fit beside the weights on every GPU, got 0",
    )


def _pool_sizes(
    settings: EngineSettings, memory: _Memory, context_tokens: int, kind: TransportKind
) -> tuple[int, int]:
    """Blocks of the pool and of the host pool; with GPUs only the latter is memory of the host."""
    kv_tokens = _kv_tokens(settings, memory, context_tokens)
    if kind is TransportKind.NCCL:
        num_reserved, pool_fault = 0, _gpu_pool_fault(settings)
    else:
        num_reserved = kv_tokens
        pool_fault = memory.fault("kv_tokens", max(kv_tokens, settings.block_tokens))
    swap_tokens = _kv_swap_tokens(settings, memory, kv_tokens, num_reserved)
    faults = [pool_fault, memory.fault("kv_swap_tokens", swap_tokens, num_reserved)]
    # Only the first: where the pool does not fit, nothing is left for the host pool.
    if first := [fault for fault in faults if fault is not None][:1]:
        raise InvalidInputError("the engine's configuration", first)
    return max(1, kv_tokens // settings.block_tokens), swap_tokens // settings.block_tokens
