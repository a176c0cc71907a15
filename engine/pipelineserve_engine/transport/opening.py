"""From a stage's settings to its links."""

import torch

from pipelineserve_engine.transport.distributed import (
    DistributedTransport,
    gloo_group,
    nccl_group,
)
from pipelineserve_engine.transport.link_settings import LinkSettings, TransportKind
from pipelineserve_engine.transport.none import NoTransport
from pipelineserve_engine.transport.protocol import Transport
from pipelineserve_engine.transport.rendezvous import join
from pipelineserve_engine.transport.shared_memory import (
    RingShape,
    SharedMemoryTransport,
)


def num_places(num_slots: int) -> int:
    """Places of a ring: every micro-batch in flight may lie in it, and one more is being read."""
    return num_slots + 1


def open_transport(
    links: LinkSettings,
    *,
    stage_index: int,
    num_stages: int,
    num_slots: int,
    hidden_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Transport:
    """Join the other stages; waits for them where they must meet.

    Args:
        links: how.
        stage_index: of this process.
        num_stages: of the pipeline.
        num_slots: micro-batches in flight at once.
        hidden_size: of the model.
        dtype: of the hidden states.
        device: where this stage computes.
    """
    if num_stages == 1:
        return NoTransport()
    if links.kind is TransportKind.SHARED_MEMORY:
        ring = RingShape(num_places(num_slots), links.place_tokens, hidden_size, dtype)
        return SharedMemoryTransport(links.before, links.behind, ring)
    store = join(links.rendezvous, num_stages)
    group = (
        nccl_group(store, stage_index, num_stages, device)
        if links.kind is TransportKind.NCCL
        else gloo_group(store, stage_index, num_stages, links.address)
    )
    return DistributedTransport(
        group,
        stage_index=stage_index,
        hidden_size=hidden_size,
        dtype=dtype,
        device=device,
        num_slots=num_slots,
    )
