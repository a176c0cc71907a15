"""Keys to be looked at: each once however often it is added, and never twice at the same time.

Reconciling is level-triggered: an event only adds a key, and whoever looks at it reads everything
anew. So nothing is lost when events are, and many events about one key cost one look.
"""

import asyncio
import heapq
import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pipelineserve.errors import PipelineServeError

logger = logging.getLogger(__name__)

KeyT = TypeVar("KeyT")

# The heap holds at most so many times as many entries as there are keys.
_MOST_UNTRUE = 4


@dataclass(frozen=True, slots=True)
class Retrying:
    """How long a key waits after it failed: doubled each time, with a share of chance.

    Attributes:
        jitter_ratio: a pause is longer or shorter by up to this share.
    """

    first_s: float = 1.0
    most_s: float = 300.0
    jitter_ratio: float = 0.2

    def pause_s(self, num_failures: int, chance: random.Random) -> float:
        """The pause after so many failures in a row, at least one."""
        # Beyond 63 doublings a float still holds, and the bound has long been met.
        pause_s = min(self.first_s * 2.0 ** min(num_failures - 1, 63), self.most_s)
        return spread_s(pause_s, self.jitter_ratio, chance)


def spread_s(span_s: float, jitter_ratio: float, chance: random.Random) -> float:
    """A span that is longer or shorter by up to a share of itself."""
    return span_s * (1.0 + jitter_ratio * (2.0 * chance.random() - 1.0))


class Agenda(Generic[KeyT]):
    """Which key is due when, and which are in work; it has no clock.

    The heap may hold times that are no longer true; `_due_s` says which are. With a thousand
    resources, to look through all of them for each look would cost more than the look.
    """

    def __init__(self) -> None:
        self._due_s: dict[KeyT, float] = {}
        self._in_work: set[KeyT] = set()
        self._heap: list[tuple[float, int, KeyT]] = []
        self._num_pushed = 0  # among equals, the first come

    def add(self, key: KeyT, due_s: float) -> None:
        """Have the key looked at by then; an earlier time that it had stays.

        One that is in work is looked at again afterwards: what it has read may be old by now.
        """
        if due_s < self._due_s.get(key, math.inf):
            self._due_s[key] = due_s
            self._push(key)

    def take(self, now_s: float) -> KeyT | None:
        """The key that is due for longest and in nobody's work; it is in the caller's from now."""
        due_s = self.next_due_s()
        if due_s is None or due_s > now_s:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due_s[key]
        self._in_work.add(key)
        return key

    def finish(self, key: KeyT) -> None:
        """The key is in nobody's work any more."""
        self._in_work.discard(key)
        if key in self._due_s:
            self._push(key)

    def next_due_s(self) -> float | None:
        """When `take` will have something at the earliest; None for never as things stand."""
        while self._heap and not self._is_true(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def num_due(self, now_s: float) -> int:
        """Keys that somebody should be looking at and nobody is."""
        return sum(due_s <= now_s for key, due_s in self._due_s.items() if key not in self._in_work)

    def _push(self, key: KeyT) -> None:
        if key in self._in_work:
            return  # `finish` does
        self._num_pushed += 1
        heapq.heappush(self._heap, (self._due_s[key], self._num_pushed, key))
        if len(self._heap) > _MOST_UNTRUE * (1 + len(self._due_s)):
            self._heap = [one for one in self._heap if self._is_true(one)]
            heapq.heapify(self._heap)

    def _is_true(self, entry: tuple[float, int, KeyT]) -> bool:
        due_s, _, key = entry
        return key not in self._in_work and self._due_s.get(key) == due_s


class WorkQueue(Generic[KeyT]):
    """Looks at keys, several at a time, while the gate is open.

    Args:
        look: looks at one key; returns after how many seconds to look again, None for never. What
            it raises is logged, and the key is tried again after a pause that grows.
        gate: set while looking is allowed; keys are kept meanwhile.
        clock: monotonic seconds.
        chance: spreads pauses.
        max_at_once: keys in work at the same time.
    """

    def __init__(
        self,
        look: Callable[[KeyT], Awaitable[float | None]],
        gate: asyncio.Event,
        clock: Callable[[], float],
        chance: random.Random,
        *,
        max_at_once: int = 8,
        retrying: Retrying | None = None,
    ) -> None:
        self._look = look
        self._gate = gate
        self._clock = clock
        self._chance = chance
        self._max_at_once = max_at_once
        self._retrying = retrying or Retrying()
        self._agenda: Agenda[KeyT] = Agenda()
        self._num_failures: dict[KeyT, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    @property
    def num_due(self) -> int:
        """Keys that wait although they are due."""
        return self._agenda.num_due(self._clock())

    def add(self, key: KeyT, delay_s: float = 0.0) -> None:
        """Look at the key after so long, or earlier if that was said before."""
        self._agenda.add(key, self._clock() + delay_s)
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled; keys in work are then cancelled too."""
        try:
            while True:
                await self._gate.wait()
                self._changed.clear()
                self._start_due()
                await self._wait_for_change()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_due(self) -> None:
        while len(self._tasks) < self._max_at_once:
            key = self._agenda.take(self._clock())
            if key is None:
                return
            task = asyncio.create_task(self._work(key))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()

    async def _wait_for_change(self) -> None:
        due_s = None if len(self._tasks) >= self._max_at_once else self._agenda.next_due_s()
        timeout_s = None if due_s is None else max(0.0, due_s - self._clock())
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return  # a key is due

    async def _work(self, key: KeyT) -> None:
        try:
            pause_s = await self._look(key)
        except Exception as error:  # noqa: BLE001 # the other keys must go on
            pause_s = self._failed(key, error)
        else:
            self._num_failures.pop(key, None)
        finally:
            self._agenda.finish(key)
        if pause_s is not None:
            self.add(key, pause_s)

    def _failed(self, key: KeyT, error: Exception) -> float:
        num_failures = self._num_failures.get(key, 0) + 1
        self._num_failures[key] = num_failures
        pause_s = self._retrying.pause_s(num_failures, self._chance)
        logger.warning(
            "reconcile failed",
            extra={
                "object": str(key),
                "failures": num_failures,
                "pause_s": round(pause_s, 1),
                "error": str(error),
            },
            # An error that was meant says all by itself.
            exc_info=None if isinstance(error, PipelineServeError) else error,
        )
        return pause_s
