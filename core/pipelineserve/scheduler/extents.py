"""Blank blocks as extents: neighbours that are blank together, merged and split as blocks move.

Attention reads a context without copying it where the context lies in few runs of memory, so runs
must stay long while many requests grow at once. A new run therefore begins in the middle of the
longest extent: the request before it keeps half of the room to grow into.
"""

import heapq


class BlankExtents:
    """A set of block ids that gives out ids next to each other.

    Args:
        num_blocks: ids 0 … `num_blocks` - 1, all in the set at first.
    """

    def __init__(self, num_blocks: int) -> None:
        self._num_ids = num_blocks
        # Both ends of each extent, end excluded.
        self._end_of: dict[int, int] = {0: num_blocks}
        self._start_of: dict[int, int] = {num_blocks: 0}
        # (-length, end) of extents, as long as they are or longer: most blocks are taken from an
        # extent's beginning, and how much is left of it is looked up when it is the longest listed.
        # Entries of extents that are no more are passed over.
        self._by_length: list[tuple[int, int]] = []
        # Ends of those that are not among them yet: most change again before the longest is asked
        # for, and a heap is not worth its time for them.
        self._unlisted = [num_blocks]

    def __len__(self) -> int:
        return self._num_ids

    def __contains__(self, block_id: int) -> bool:
        """Linear in the number of extents: for checks, not for the scheduler's path."""
        return any(start <= block_id < end for start, end in self._end_of.items())

    def add(self, block_id: int, num_blocks: int = 1) -> None:
        """Put blocks that are not in the set, from this one on, beside their neighbours."""
        last = block_id + num_blocks
        start = self._start_of.pop(block_id, block_id)
        end = self._end_of.pop(last, last)
        self._insert(start, end)
        self._num_ids += num_blocks

    def take_behind(self, block_id: int, num_wanted: int) -> list[int]:
        """Take up to `num_wanted` blocks directly behind this one; none if they are not blank."""
        start = block_id + 1
        if start not in self._end_of:
            return []
        return self._take(start, start, num_wanted)

    def take_if_first(self, block_id: int) -> bool:
        """Take this block if an extent begins with it."""
        end = self._end_of.pop(block_id, None)
        if end is None:
            return False
        self._num_ids -= 1
        self._set_start(block_id + 1, end)
        return True

    def take_run(self, num_wanted: int) -> list[int]:
        """Take up to `num_wanted` neighbours, from the middle of the longest extent.

        Raises:
            IndexError: the set is empty.
        """
        start = self._longest()
        room = self._end_of[start] - start - num_wanted
        return self._take(start, start + max(0, room // 2), num_wanted)

    def _take(self, start: int, first: int, num_wanted: int) -> list[int]:
        end = self._end_of.pop(start)
        last = min(end, first + num_wanted)
        self._set_start(last, end)
        if start < first:
            self._insert(start, first)
        self._num_ids -= last - first
        return list(range(first, last))

    def _set_start(self, start: int, end: int) -> None:
        """An extent begins later than it did, or is used up."""
        if start == end:
            del self._start_of[end]
        else:
            self._end_of[start] = end
            self._start_of[end] = start

    def _insert(self, start: int, end: int) -> None:
        self._end_of[start] = end
        self._start_of[end] = start
        self._unlisted.append(end)
        if len(self._unlisted) + len(self._by_length) > 64 + 4 * len(self._end_of):
            self._by_length = [(start - end, end) for start, end in self._end_of.items()]
            self._unlisted.clear()
            heapq.heapify(self._by_length)

    def _longest(self) -> int:
        """The start of the longest extent, of several the first."""
        by_length, start_of = self._by_length, self._start_of
        for end in self._unlisted:
            if end in start_of:
                heapq.heappush(by_length, (start_of[end] - end, end))
        self._unlisted.clear()
        while True:
            negative_length, end = by_length[0]
            start = start_of.get(end)
            if start is None:
                heapq.heappop(by_length)
            elif start - end == negative_length:
                return start
            else:
                heapq.heapreplace(by_length, (start - end, end))
