"""The memory that holds one stage's keys and values."""

import torch


class KvCache:
    """Keys and values of one stage's layers, [layers, 2, kv_heads, positions, head_dim]."""

    def __init__(
        self, *, num_layers: int, num_kv_heads: int, num_positions: int, head_dim: int,
        dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        # Not zeroed: pages that no request reaches are never committed by the system.
        self._tensor = torch.empty(
            (num_layers, 2, num_kv_heads, num_positions, head_dim), dtype=dtype, device=device
        )

    @property
    def num_bytes(self) -> int:
        """Size of the cache when all of it is in use."""
        return self._tensor.numel() * self._tensor.element_size()

    def layer(self, local_layer_index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer, each [kv_heads, positions, head_dim]."""
        pair = self._tensor[local_layer_index]
        return pair[0], pair[1]
