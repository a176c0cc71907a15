"""Every rank's side: it counts turns and obeys the orders that come with SGLang's own requests.

All ranks get the same orders at the same turn and hold the same batches, so they do the same.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from pipelineserve_engine.sglang.batches import joined, sampling_of, take_out
from pipelineserve_engine.sglang.budget import engine_chunk_tokens
from pipelineserve_engine.sglang.orders import TurnOrder

logger = logging.getLogger(__name__)


class StageSide:
    """Obeys; decides nothing.

    Attributes:
        turn: the present one; -1 before the first.
        chunk_tokens: the budget in force; None before the first order, when SGLang's own holds.
        held: the decodes that are kept out, as one of SGLang's batches.

    Args:
        page_tokens: tokens of a KV page.
        max_chunk_tokens: what SGLang was started with, for which its buffers were sized.
        num_slots: micro-batches in flight.
        own_sampling: makes the sampling settings of a batch that is split off.
    """

    def __init__(
        self,
        *,
        page_tokens: int,
        max_chunk_tokens: int,
        num_slots: int,
        own_sampling: Callable[[Any], object] = sampling_of,
    ) -> None:
        self.turn = -1
        self.chunk_tokens: int | None = None
        self.held: Any | None = None
        self._page_tokens = page_tokens
        self._max_chunk_tokens = max_chunk_tokens
        self._num_slots = num_slots
        self._own_sampling = own_sampling
        self._order: TurnOrder | None = None

    @property
    def next_slot(self) -> int:
        """The slot of the next turn; SGLang visits them in turn."""
        return (self.turn + 1) % self._num_slots

    @property
    def slot_index(self) -> int:
        """The slot of the present turn."""
        return self.turn % self._num_slots

    @property
    def is_holding(self) -> bool:
        """Whether any decode is kept out."""
        return self.held is not None and not self.held.is_empty()

    @property
    def held_requests(self) -> Sequence[Any]:
        """Those that are kept out."""
        return () if self.held is None else self.held.reqs

    def begin_turn(self, received: Sequence[Any]) -> list[Any]:
        """A turn begins with what was received; return it without our order."""
        self.turn += 1
        self._order = None
        others = []
        for item in received:
            if isinstance(item, TurnOrder):
                self._take(item)
            else:
                others.append(item)
        return others

    def compose(self, scheduler: Any, running_batch: Any) -> Any:
        """Hold and release, and set the budget, before a micro-batch is composed.

        Args:
            scheduler: SGLang's.
            running_batch: the slot's decodes, those just prefilled in it too.

        Returns:
            The decodes to go on with.
        """
        order = self._order
        if order is not None and order.held:
            taken = take_out(running_batch, order.held, self._own_sampling)
            self.held = joined(self.held, taken)
        if order is not None and order.released and self.held is not None:
            taken = take_out(self.held, order.released, self._own_sampling)
            running_batch = joined(running_batch, taken)
        if self.chunk_tokens is not None:
            scheduler.chunked_prefill_size = engine_chunk_tokens(
                self.chunk_tokens,
                num_decodes=len(running_batch.reqs) if scheduler.is_mixed_chunk else 0,
                page_tokens=self._page_tokens,
                max_chunk_tokens=self._max_chunk_tokens,
            )
        return running_batch

    def _take(self, order: TurnOrder) -> None:
        if order.turn != self.turn:
            logger.error("an order for turn %d came at turn %d", order.turn, self.turn)
        self._order = order
        self.chunk_tokens = order.chunk_tokens
