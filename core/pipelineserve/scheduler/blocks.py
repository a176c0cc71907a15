"""The pool of KV blocks: reference counts, prefix cache, LRU eviction.

A block is *taken* while at least one request references it. A block that nobody references is free;
if its content is known by a digest it can still be found again until it is evicted, least recently
released first. Blocks without known content are given out before any cached one.
"""

from collections import OrderedDict


class BlockPool:
    """Blocks 0 … `num_blocks` - 1; callers hold references, the pool counts them."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._references = [0] * num_blocks
        self._digests: list[bytes | None] = [None] * num_blocks
        self._by_digest: dict[bytes, int] = {}
        self._blank: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        """Blocks that could be allocated now, cached content included."""
        return len(self._blank) + len(self._cached)

    def num_references(self, block_id: int) -> int:
        """How many requests reference the block."""
        return self._references[block_id]

    def allocate(self, after: int | None = None) -> int:
        """Take a free block for new content and return it with one reference.

        Args:
            after: prefer the block behind this one, so that a context lies in one run of memory;
                it is not worth evicting cached content for.

        Raises:
            IndexError: no block is free; ask `num_free` first.
        """
        if after is not None and after + 1 in self._blank:
            block_id = after + 1
            del self._blank[block_id]
        elif self._blank:
            block_id, _ = self._blank.popitem(last=False)
        elif self._cached:
            block_id, _ = self._cached.popitem(last=False)
            self._forget(block_id)
        else:
            raise IndexError("no KV block is free")
        self._references[block_id] = 1
        return block_id

    def find(self, digest: bytes) -> int | None:
        """Return the block that holds this content, without taking a reference."""
        return self._by_digest.get(digest)

    def reference(self, block_id: int) -> None:
        """Add a reference to a block found by its digest."""
        if self._references[block_id] == 0:
            del self._cached[block_id]
        self._references[block_id] += 1

    def release(self, block_id: int) -> None:
        """Drop one reference.

        Raises:
            ValueError: there is none to drop.
        """
        if self._references[block_id] < 1:
            raise ValueError(f"KV block {block_id} is released more often than referenced")
        self._references[block_id] -= 1
        if self._references[block_id] == 0:
            home = self._blank if self._digests[block_id] is None else self._cached
            home[block_id] = None

    def publish(self, block_id: int, digest: bytes) -> None:
        """Let a taken, full block be found by its content; the first block of a content stays."""
        if digest not in self._by_digest and self._digests[block_id] is None:
            self._by_digest[digest] = block_id
            self._digests[block_id] = digest

    def _forget(self, block_id: int) -> None:
        digest = self._digests[block_id]
        if digest is not None:
            del self._by_digest[digest]
            self._digests[block_id] = None
