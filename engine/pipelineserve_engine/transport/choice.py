"""Which kind of transport joins the stages, and whether it can on this machine."""

import sys

import torch
import torch.distributed as dist

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_engine.transport.link_settings import TransportKind

AUTO = "auto"


TRANSPORTS = (AUTO, *(kind.value for kind in TransportKind))


def choose_transport(name: str, *, is_one_host: bool) -> TransportKind:
    """The kind of this name; auto is shared memory on one host, and gloo between hosts.

    Args:
        name: one of `TRANSPORTS`.
        is_one_host: all stages are children of the server.

    Raises:
        InvalidInputError: this machine, or stages on other hosts, cannot have it.
    """
    if name == AUTO:
        can_share = is_one_host and sys.platform == "linux"
        return TransportKind.SHARED_MEMORY if can_share else TransportKind.GLOO
    kind = TransportKind(name)
    if (obstacle := _obstacle(kind, is_one_host=is_one_host)) is not None:
        fault = Fault("transport", f"{name} {obstacle}")
        raise InvalidInputError("the engine's configuration", [fault])
    return kind


def _obstacle(kind: TransportKind, *, is_one_host: bool) -> str | None:
    match kind:
        case TransportKind.GLOO:
            return None
        case TransportKind.SHARED_MEMORY:
            if not is_one_host:
                return "joins stages of one host only; leave stage_addresses out, or take gloo"
            return None if sys.platform == "linux" else "needs Linux; take gloo"
        case TransportKind.NCCL:
            if not dist.is_nccl_available():
                return "needs a build of torch with NCCL; install one for CUDA, or take gloo"
            has_gpu = torch.cuda.is_available()
            return None if has_gpu else "needs a GPU, and CUDA finds none; take gloo"
