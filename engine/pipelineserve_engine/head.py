"""The output head: from hidden states to logits.

On a CPU in float32 its weight is packed once for oneDNN where that can be had: MKL's product takes
two and a half times as long for the few rows of a micro-batch that sample (bench/results.md).
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import linear

logger = logging.getLogger(__name__)

_CHECKED_ROWS = 2

# torch's own, which its compiler uses for frozen weights; not public.
OPERATORS: Any = torch.ops.mkldnn


class Head:
    """Logits of the rows that sample.

    Args:
        weight: [vocabulary, hidden].
        is_shared: the weight is the embedding's of this stage, which stays as it is. Else a packed
            one takes its place.

    Attributes:
        num_bytes: memory of its own.
    """

    def __init__(self, weight: torch.Tensor, *, is_shared: bool) -> None:
        self.num_bytes = 0 if is_shared else weight.numel() * weight.element_size()
        packed = None if is_shared else _packed(weight)
        self._product = packed or _plain(weight)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """From hidden states [rows, hidden] to logits [rows, vocabulary]."""
        return self._product(hidden)


def _plain(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda hidden: linear(hidden, weight)


def _packed(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The product with a packed weight; None where torch has none or another one than expected.

    The operators may change with any version: they are tried, and what comes out is compared once.
    """
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return None
    try:
        packed_weight = OPERATORS._reorder_linear_weight(weight)  # noqa: SLF001 - the only name they have

        def product(hidden: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = OPERATORS._linear_pointwise(  # noqa: SLF001 - the only name they have
                hidden, packed_weight, None, "none", [], ""
            )
            return logits

        rows = weight[:_CHECKED_ROWS].contiguous()
        torch.testing.assert_close(product(rows), linear(rows, weight), rtol=1e-3, atol=1e-3)
    except (AttributeError, RuntimeError, TypeError, AssertionError) as error:
        logger.info("the head is not packed: %s", str(error).partition("\n")[0])
        return None
    return product
