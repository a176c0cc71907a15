"""Bounds of one scheduler, fixed for its life."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Sizes that buffers and promises were made from.

    Attributes:
        num_slots: micro-batches in flight at once.
        max_chunk_tokens: most tokens of one micro-batch.
        num_blocks: KV blocks in the pool.
        block_tokens: tokens of one KV block.
        max_context_tokens: prompt and output of one request together.
        max_waiting_requests: bound of the waiting queue; preempted requests do not count.
        max_running_requests: requests that may hold KV at once.
        num_host_blocks: blocks of host memory for the KV of preempted requests; 0 for none.
        shares_prefixes: whether requests share the KV of common prefixes; without it no content is
            looked at, which is quicker where nothing is in common.

    Raises:
        ValueError: a size is below 1, or that of the host pool below 0.
    """

    num_slots: int
    max_chunk_tokens: int
    num_blocks: int
    block_tokens: int
    max_context_tokens: int
    max_waiting_requests: int = 1024
    max_running_requests: int = 256
    num_host_blocks: int = 0
    shares_prefixes: bool = True

    def __post_init__(self) -> None:
        for name in self.__slots__[: self.__slots__.index("shares_prefixes")]:
            least = 0 if name == "num_host_blocks" else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name}: expected at least {least}, got {getattr(self, name)}")

    @property
    def max_request_tokens(self) -> int:
        """Longest prompt plus output that one request may have: it must fit the pool alone."""
        return min(self.max_context_tokens, self.num_blocks * self.block_tokens)
