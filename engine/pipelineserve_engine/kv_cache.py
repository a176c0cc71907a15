"""The memory that holds one stage's keys and values, and those of swapped requests on the host."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import torch

from pipelineserve.scheduler.messages import BlockCopy, CopyDirection

# Enough for a time that can be told from nothing; what is copied means nothing yet.
_MEASURED_BLOCKS = 8
_MEASURED_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class HostPoolShape:
    """Blocks of host memory beside the cache, and the tokens of one block on either side."""

    num_blocks: int
    block_tokens: int


class KvCache:
    """Keys and values of one stage's layers, [layers, 2, kv_heads, positions, head_dim].

    The host pool is [blocks, layers * 2 * kv_heads, block_tokens * head_dim]: one block lies in one
    run of it, so that a copy across a bus is one transfer.
    """

    def __init__(
        self, *, num_layers: int, num_kv_heads: int, num_positions: int, head_dim: int,
        dtype: torch.dtype, device: torch.device, host_pool: HostPoolShape | None = None,
    ) -> None:  # fmt: skip
        # Not zeroed: pages that no request reaches are never committed by the system.
        self._tensor = torch.empty(
            (num_layers, 2, num_kv_heads, num_positions, head_dim), dtype=dtype, device=device
        )
        sizes = host_pool or HostPoolShape(0, block_tokens=1)
        num_rows, width = num_layers * 2 * num_kv_heads, sizes.block_tokens * head_dim
        # A view by blocks of the same memory.
        self._blocks = self._tensor.view(num_rows, num_positions // sizes.block_tokens, width)
        self._host = torch.empty(
            (sizes.num_blocks, num_rows, width), dtype=dtype, pin_memory=device.type == "cuda"
        )

    @property
    def num_bytes(self) -> int:
        """Size of the cache when all of it is in use, host blocks not counted."""
        return self._tensor.numel() * self._tensor.element_size()

    def layer(self, local_layer_index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer, each [kv_heads, positions, head_dim]."""
        pair = self._tensor[local_layer_index]
        return pair[0], pair[1]

    def copy_blocks(self, copies: Iterable[BlockCopy]) -> None:
        """Copy blocks, with the outcome that they have one after the other."""
        for direction, run in groupby(copies, key=attrgetter("direction")):
            match direction:
                case CopyDirection.OUT:
                    # A block that is written twice in one run keeps the last content: what is read
                    # does not change meanwhile.
                    self._copy_out({copy.host_block_id: copy.device_block_id for copy in run})
                case CopyDirection.IN:
                    self._copy_in({copy.device_block_id: copy.host_block_id for copy in run})

    def measure_copy_s(self, clock: Callable[[], float]) -> float:
        """Time one block takes one way, before anything lies in the cache; 0 without host blocks.

        Args:
            clock: seconds; read around copies there and back.
        """
        num_blocks = min(_MEASURED_BLOCKS, len(self._host), self._blocks.shape[1])
        if num_blocks == 0:
            return 0.0
        pairs = {index: index for index in range(num_blocks)}
        times_s = []
        for _ in range(_MEASURED_ROUNDS):  # the first one also makes the pages
            start_s = clock()
            self._copy_out(pairs)
            self._copy_in(pairs)
            self._await_copies()
            times_s.append(clock() - start_s)
        return min(times_s) / (2 * num_blocks)

    def _copy_out(self, device_of_host: dict[int, int]) -> None:
        device_ids = self._ids(device_of_host.values())
        staged = self._blocks.index_select(1, device_ids).transpose(0, 1).contiguous()
        for host_id, block in zip(device_of_host, staged, strict=True):
            # The stream keeps the order of copies and steps, so nothing has to wait here.
            self._host[host_id].copy_(block, non_blocking=True)

    def _copy_in(self, host_of_device: dict[int, int]) -> None:
        num_rows, _, width = self._blocks.shape
        staged = self._blocks.new_empty((len(host_of_device), num_rows, width))
        for host_id, block in zip(host_of_device.values(), staged, strict=True):
            block.copy_(self._host[host_id], non_blocking=True)
        self._blocks.index_copy_(1, self._ids(host_of_device), staged.transpose(0, 1))

    def _ids(self, block_ids: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(block_ids), dtype=torch.int64, device=self._blocks.device)

    def _await_copies(self) -> None:
        if self._blocks.device.type == "cuda":
            torch.cuda.synchronize(self._blocks.device)
