"""The pool of KV blocks: reference counts, prefix cache, LRU eviction.

A block is *taken* while at least one request references it. A block that nobody references is free;
if its content is known by a digest it can still be found again until it is evicted, least recently
released first. Blocks without known content are given out before any cached one.
"""

from collections import OrderedDict

from pipelineserve.scheduler.extents import BlankExtents

# Content is evicted several blocks at a time, so that a request can grow in one run; at most this
# share of the pool is evicted earlier than it had to be.
_EVICTED_BLOCKS = 8
_EVICTED_RATIO = 1 / 64


class BlockPool:
    """Blocks 0 … `num_blocks` - 1; callers hold references, the pool counts them."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._references = [0] * num_blocks
        self._digests: list[bytes | None] = [None] * num_blocks
        self._by_digest: dict[bytes, int] = {}
        self._blank = BlankExtents(num_blocks)
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        """Blocks that could be allocated now, cached content included."""
        return len(self._blank) + len(self._cached)

    def num_references(self, block_id: int) -> int:
        """How many requests reference the block."""
        return self._references[block_id]

    def allocate(self, num_wanted: int = 1, after: int | None = None) -> list[int]:
        """Take free blocks for new content, each with one reference, in as few runs as possible.

        Args:
            num_wanted: how many.
            after: the block that they continue; they lie behind it where those blocks are blank.

        Raises:
            IndexError: fewer are free; ask `num_free` first.
        """
        if num_wanted > self.num_free:
            raise IndexError(f"expected at most {self.num_free} KV blocks, asked for {num_wanted}")
        taken = [] if after is None else self._blank.take_behind(after, num_wanted)
        while len(taken) < num_wanted:
            if not self._blank:
                self._evict(num_wanted - len(taken))
            taken += self._blank.take_run(num_wanted - len(taken))
        for block_id in taken:
            self._references[block_id] = 1
        return taken

    def allocate_one(self, after: int) -> int:
        """Take one block that continues another: `allocate` for the growth of decodes."""
        if not self._blank.take_if_first(after + 1):
            return self.allocate()[0]
        self._references[after + 1] = 1
        return after + 1

    def find(self, digest: bytes) -> int | None:
        """Return the block that holds this content, without taking a reference."""
        return self._by_digest.get(digest)

    def reference(self, block_id: int) -> None:
        """Add a reference to a block found by its digest."""
        if self._references[block_id] == 0:
            del self._cached[block_id]
        self._references[block_id] += 1

    def release(self, *block_ids: int) -> None:
        """Drop one reference of each; of those that stay cached the first is evicted first.

        Raises:
            ValueError: there is none to drop.
        """
        references = self._references
        blank: list[int] = []
        for block_id in block_ids:
            if references[block_id] < 1:
                raise ValueError(f"KV block {block_id} is released more often than referenced")
            references[block_id] -= 1
            if references[block_id] == 0:
                if self._digests[block_id] is None:
                    blank.append(block_id)
                else:
                    self._cached[block_id] = None
        for first, num_blocks in _runs_of(blank):
            self._blank.add(first, num_blocks)

    def publish(self, block_id: int, digest: bytes) -> None:
        """Let a taken, full block be found by its content; the first block of a content stays."""
        if digest not in self._by_digest and self._digests[block_id] is None:
            self._by_digest[digest] = block_id
            self._digests[block_id] = digest

    def _evict(self, num_wanted: int) -> None:
        """Make cached blocks blank, those released longest ago."""
        at_once = min(_EVICTED_BLOCKS, int(self.num_blocks * _EVICTED_RATIO))
        for _ in range(min(len(self._cached), max(num_wanted, at_once))):
            block_id, _ = self._cached.popitem(last=False)
            self._forget(block_id)
            self._blank.add(block_id)

    def _forget(self, block_id: int) -> None:
        digest = self._digests[block_id]
        if digest is not None:
            del self._by_digest[digest]
            self._digests[block_id] = None


def _runs_of(block_ids: list[int]) -> list[tuple[int, int]]:
    """Neighbours taken together: the first of each run, and how many there are."""
    runs: list[tuple[int, int]] = []
    block_ids.sort()
    first = 0
    for place in range(1, len(block_ids) + 1):
        if place == len(block_ids) or block_ids[place] != block_ids[place - 1] + 1:
            runs.append((block_ids[first], place - first))
            first = place
    return runs
