"""The pool of host blocks that hold the KV of preempted requests; each has one owner or none."""


class HostPool:
    """Blocks 0 … `num_blocks` - 1 of host memory; no sharing and no cache, unlike the device's."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._is_taken = [False] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that nobody owns."""
        return len(self._free)

    @property
    def num_taken(self) -> int:
        """Blocks that requests own."""
        return self.num_blocks - len(self._free)

    def take(self, num_blocks: int) -> list[int]:
        """Take blocks, those given back last first.

        Raises:
            IndexError: there are not so many; ask `num_free` first.
        """
        if num_blocks > len(self._free):
            raise IndexError(f"expected at most {len(self._free)} host blocks, asked {num_blocks}")
        taken = [self._free.pop() for _ in range(num_blocks)]
        for block_id in taken:
            self._is_taken[block_id] = True
        return taken

    def give_back(self, block_ids: list[int]) -> None:
        """Make blocks free again.

        Raises:
            ValueError: one of them is free already.
        """
        for block_id in block_ids:
            if not self._is_taken[block_id]:
                raise ValueError(f"host block {block_id} is given back more often than taken")
            self._is_taken[block_id] = False
            self._free.append(block_id)
