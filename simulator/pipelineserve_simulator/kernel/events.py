"""Events in virtual time, and the order of those that happen at the same instant.

The order is total: an event with the earlier tick goes first; at the same tick the one with the
lower rank; at the same rank the one that was pushed first. So a run never depends on how a heap
breaks ties, and what an instant means is the ranks' to say.
"""

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[int], None]
"""What happens; it is called with the tick at which it does."""


class EventHeap:
    """Events to come; time is that of the latest one that was taken, and never runs backwards."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Action]] = []
        self._num_pushed = 0
        self._now_ticks = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def now_ticks(self) -> int:
        """The present."""
        return self._now_ticks

    def push(self, at_ticks: int, rank: int, action: Action) -> None:
        """Let something happen, now or later.

        Raises:
            ValueError: it would happen in the past.
        """
        if at_ticks < self._now_ticks:
            raise ValueError(f"expected a tick from {self._now_ticks} on, got {at_ticks}")
        heappush(self._heap, (at_ticks, rank, self._num_pushed, action))
        self._num_pushed += 1

    def run_instant(self) -> int:
        """Let everything happen that is due at the next instant, and return its tick.

        What an action pushes for the same instant happens within it, after all that goes before it
        in the order and is still to come.

        Raises:
            IndexError: nothing is to come.
        """
        heap = self._heap
        now_ticks = self._now_ticks = heap[0][0]
        while heap and heap[0][0] == now_ticks:
            heappop(heap)[3](now_ticks)
        return now_ticks
