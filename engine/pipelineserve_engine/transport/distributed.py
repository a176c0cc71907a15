"""Point to point over torch.distributed: gloo between processes, NCCL between GPUs."""

from collections import deque
from dataclasses import dataclass
from typing import Protocol, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from pipelineserve_engine.transport.rendezvous import TIMEOUT


class ProcessGroup(Protocol):
    """The part of torch's backends that is used; their stubs leave it out."""

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int) -> dist.Work:
        """Start to send one tensor."""
        ...

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int) -> dist.Work:
        """Start to receive into one tensor."""
        ...


@dataclass(frozen=True, slots=True)
class _Posted:
    """A receive into memory of its own."""

    work: dist.Work
    hidden: torch.Tensor

    def wait(self) -> torch.Tensor:
        """Wait for [tokens, hidden]."""
        self.work.wait()
        if self.hidden.is_cuda:
            # So far only the stream waits; the step's time begins when its input is there.
            torch.cuda.current_stream(self.hidden.device).synchronize()
        return self.hidden

    def release(self) -> None:
        """Nothing to give back: the memory is this receive's own."""


class DistributedTransport:
    """Sends and receives of one member of a process group.

    Args:
        group: all stages, each under its index as rank.
        stage_index: this process's rank.
        hidden_size: of the model.
        dtype: of the hidden states.
        device: where they lie.
        num_slots: micro-batches in flight; so many sends may be under way at once.
    """

    def __init__(
        self,
        group: ProcessGroup,
        *,
        stage_index: int,
        hidden_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_slots: int,
    ) -> None:
        self._group: ProcessGroup | None = group
        self._stage_index = stage_index
        self._hidden_size = hidden_size
        self._dtype = dtype
        self._device = device
        self._num_slots = num_slots
        self._sends: deque[tuple[dist.Work, torch.Tensor]] = deque()

    def post_receive(self, num_tokens: int) -> _Posted:
        """Start to receive [num_tokens, hidden] of the stage before."""
        assert self._group is not None  # noqa: S101 - not after close
        shape = (num_tokens, self._hidden_size)
        hidden = torch.empty(shape, dtype=self._dtype, device=self._device)
        return _Posted(self._group.recv([hidden], self._stage_index - 1, 0), hidden)

    def send(self, hidden: torch.Tensor) -> None:
        """Start sending; the tensor is kept until it is through.

        A slot is filled again when its micro-batch has left the last stage, so whatever is older
        than the slots has long been received: waiting for it waits for nothing.
        """
        assert self._group is not None  # noqa: S101 - not after close
        contiguous = hidden.contiguous()
        self._sends.append((self._group.send([contiguous], self._stage_index + 1, 0), contiguous))
        while len(self._sends) > self._num_slots:
            self._sends.popleft()[0].wait()

    def close(self) -> None:
        """Leave the group once everything is sent."""
        while self._sends:
            self._sends.popleft()[0].wait()
        self._group = None


def gloo_group(store: Store, rank: int, size: int, address: str) -> ProcessGroup:
    """Join the group over TCP.

    Args:
        store: shared by all members.
        rank: of this member.
        size: of the group.
        address: this member's own, which the others can reach. Without it gloo looks up the
            host's name, which many machines cannot resolve.
    """
    # The names that torch gives to the only way to choose a device; its stubs leave them out.
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # noqa: SLF001
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]  # noqa: SLF001
    options._timeout = TIMEOUT  # noqa: SLF001
    return cast("ProcessGroup", dist.ProcessGroupGloo(store, rank, size, options))


def nccl_group(store: Store, rank: int, size: int, device: torch.device) -> ProcessGroup:
    """Join the group between GPUs; each link gets a communicator at its first message.

    Args:
        store: shared by all members.
        rank: of this member.
        size: of the group.
        device: this member's own GPU.
    """
    torch.cuda.set_device(device)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = TIMEOUT  # noqa: SLF001
    return cast("ProcessGroup", dist.ProcessGroupNCCL(store, rank, size, options))
