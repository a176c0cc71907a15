"""Hidden states from one stage to the next."""

import os
import sys
from collections import deque
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist

# A receive is only posted once its command has come, so it waits for one step at most; a stage that
# is gone is noticed through its process, long before this.
_TIMEOUT = timedelta(hours=24)


class Transport(Protocol):
    """One stage's links to its neighbours; both ends know the sizes from the step's command."""

    def receive(self, num_tokens: int) -> torch.Tensor:
        """Wait for [num_tokens, hidden] of the stage before."""
        ...

    def send(self, hidden: torch.Tensor) -> None:
        """Start sending [tokens, hidden] to the stage behind; returns at once."""
        ...

    def close(self) -> None:
        """Give up the links."""
        ...


class DistributedTransport:
    """Point to point over torch.distributed; gloo between the processes of one machine.

    Args:
        stage_index: this process's rank.
        num_stages: of the whole group; all must join before the first message.
        rendezvous: a file that all stages share, which must not exist before they start.
        hidden_size: of the model.
        dtype: of the hidden states.
        num_slots: sends that may be under way at once.
    """

    def __init__(
        self,
        *,
        stage_index: int,
        num_stages: int,
        rendezvous: Path,
        hidden_size: int,
        dtype: torch.dtype,
        num_slots: int,
    ) -> None:
        self._stage_index = stage_index
        self._hidden_size = hidden_size
        self._dtype = dtype
        self._sends: deque[tuple[dist.Work, torch.Tensor]] = deque()
        self._num_slots = num_slots
        # Without a name gloo looks up the host's own, which many machines cannot resolve.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        dist.init_process_group(
            "gloo",
            init_method=rendezvous.as_uri(),
            rank=stage_index,
            world_size=num_stages,
            timeout=_TIMEOUT,
        )

    def receive(self, num_tokens: int) -> torch.Tensor:
        """Wait for [num_tokens, hidden] of the stage before."""
        hidden = torch.empty((num_tokens, self._hidden_size), dtype=self._dtype)
        dist.recv(hidden, src=self._stage_index - 1)
        return hidden

    def send(self, hidden: torch.Tensor) -> None:
        """Start sending; the tensor is kept until the oldest sends are known to be through."""
        work = dist.isend(hidden.contiguous(), dst=self._stage_index + 1)
        if work is not None:
            self._sends.append((work, hidden))
        while len(self._sends) > self._num_slots:
            self._sends.popleft()[0].wait()

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group()


class NoTransport:
    """The links of a pipeline with one stage: there are none."""

    def receive(self, num_tokens: int) -> torch.Tensor:
        """Never called: the only stage is the first."""
        raise RuntimeError(f"the first stage receives no hidden states (asked for {num_tokens})")

    def send(self, hidden: torch.Tensor) -> None:
        """Never called: the only stage is the last."""
        raise RuntimeError(f"the last stage sends no hidden states (got {tuple(hidden.shape)})")

    def close(self) -> None:
        """Nothing to give up."""
