"""KV blocks of requests: growing, sharing prefixes, moving to the host and back.

Blocks are published when the micro-batch that fills them is composed, not when it completes: every
stage executes micro-batches in order, so whoever finds the block comes after it was written.

For the same reason blocks that are copied are free for others at once, on either side: whoever
writes one next does so in a micro-batch that executes the copy first. Copies are collected in the
order in which they were decided, and all of them ride with the next micro-batch that is composed.
"""

from array import array
from collections.abc import Iterable
from hashlib import blake2b

from pipelineserve.scheduler.blocks import BlockPool
from pipelineserve.scheduler.host_blocks import HostPool
from pipelineserve.scheduler.messages import BlockCopy, CopyDirection
from pipelineserve.scheduler.requests import Request

_DIGEST_BYTES = 16


class KvLedger:
    """Which blocks each request holds; the only caller of the pools.

    Args:
        num_blocks: of the device's pool.
        block_tokens: tokens of one block.
        num_host_blocks: of the host's pool.
        shares_prefixes: whether content is published and found again.
    """

    def __init__(
        self,
        num_blocks: int,
        block_tokens: int,
        num_host_blocks: int = 0,
        *,
        shares_prefixes: bool = True,
    ) -> None:
        self.block_tokens = block_tokens
        self.pool = BlockPool(num_blocks)
        self.host = HostPool(num_host_blocks)
        self._shares_prefixes = shares_prefixes
        self._copies: list[BlockCopy] = []

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-num_tokens // self.block_tokens)

    def num_missing(self, request: Request, num_tokens: int) -> int:
        """Blocks that the request lacks to hold its first `num_tokens` tokens."""
        return max(0, self.num_blocks_for(num_tokens) - len(request.block_ids))

    def num_wanted_to_start(self, request: Request) -> int:
        """Free blocks that all tokens of a waiting request would take, prefix hits deducted.

        A hit that nobody references now lies in the free list, so it is wanted like a new block;
        and so is one that is filled from the host rather than computed.
        """
        total = self.num_blocks_for(len(request.token_ids))
        shared = sum(1 for hit in self._prefix_hits(request) if self.pool.num_references(hit) > 0)
        return total - shared

    def num_shared_tokens(self, request: Request) -> int:
        """Tokens in leading blocks that another request holds too."""
        num_shared = 0
        for block_id in request.block_ids:
            if self.pool.num_references(block_id) < 2:
                break
            num_shared += 1
        return num_shared * self.block_tokens

    def start(self, request: Request) -> int:
        """Give a waiting request the blocks with KV of its own; return the tokens they hold.

        What the prefix cache has is taken from there, the rest of what is kept in host memory is
        copied in.

        Raises:
            IndexError: too few blocks are free; ask `num_wanted_to_start` first.
        """
        num_cached = self.take_prefix(request)
        num_hits = len(request.block_ids)
        if not self.grow(request, request.num_issued):
            raise IndexError(f"too few KV blocks are free to copy {request.request_id} in")
        kept = zip(request.block_ids[num_hits:], request.host_block_ids[num_hits:], strict=True)
        self._copies += [BlockCopy(CopyDirection.IN, device, host) for device, host in kept]
        self._release_host(request)
        return max(num_cached, request.num_issued)

    def swap_out(self, request: Request) -> None:
        """Move the request's KV to host memory; it must be in no micro-batch in flight.

        Raises:
            IndexError: the host pool has not enough free blocks; ask it first.
        """
        request.host_block_ids = self.host.take(self.num_blocks_for(request.num_issued))
        kept = zip(request.block_ids, request.host_block_ids, strict=True)
        self._copies += [BlockCopy(CopyDirection.OUT, device, host) for device, host in kept]
        self._release_device(request)

    def take_copies(self) -> tuple[BlockCopy, ...]:
        """Hand over the copies for the micro-batch that is being launched."""
        copies, self._copies = tuple(self._copies), []
        return copies

    def take_prefix(self, request: Request) -> int:
        """Reference the cached blocks of the request's prefix; return the tokens they hold.

        At least one token stays to be computed, since a sample needs its logits.
        """
        hits = self._prefix_hits(request)
        for block_id in hits:
            self.pool.reference(block_id)
        request.block_ids = tuple(hits)
        request.num_published = len(hits)
        return len(hits) * self.block_tokens

    def grow(self, request: Request, num_tokens: int) -> bool:
        """Allocate blocks so that the request holds `num_tokens` tokens; all of them or none."""
        num_missing = self.num_missing(request, num_tokens)
        if num_missing == 0:
            return True  # nearly every decode
        if num_missing > self.pool.num_free:
            return False
        after = request.block_ids[-1] if request.block_ids else None
        request.block_ids += tuple(self.pool.allocate(num_missing, after))
        return True

    def grow_decodes(self, requests: Iterable[Request]) -> bool:
        """Allocate the blocks that decodes need for their latest tokens; all of them or none."""
        block_tokens = self.block_tokens
        # All but the latest token of each are issued and have just the blocks that they need: it
        # lacks exactly one where those are full.
        growing = [request for request in requests if request.num_issued % block_tokens == 0]
        if len(growing) > self.pool.num_free:
            return False
        for request in growing:
            request.block_ids += (self.pool.allocate_one(request.block_ids[-1]),)
        return True

    def publish(self, requests: Iterable[Request]) -> None:
        """Offer the requests' full blocks, up to what was issued, to the prefix cache."""
        if not self._shares_prefixes:
            return
        for request in requests:
            num_full = request.num_issued // self.block_tokens
            if num_full > request.num_published:
                for index in range(request.num_published, num_full):
                    self.pool.publish(request.block_ids[index], self._digest(request, index))
                request.num_published = num_full

    def release(self, request: Request) -> None:
        """Give back all blocks, wherever; the request must be in no micro-batch in flight."""
        self._release_device(request)
        self._release_host(request)

    def _release_device(self, request: Request) -> None:
        """Give the blocks back, the tail first, so that eviction eats a prefix from its end."""
        self.pool.release(*reversed(request.block_ids))
        request.block_ids = ()
        request.num_published = 0

    def _release_host(self, request: Request) -> None:
        self.host.give_back(request.host_block_ids)
        request.host_block_ids = []

    def _prefix_hits(self, request: Request) -> list[int]:
        hits: list[int] = []
        if not self._shares_prefixes:
            return hits
        for index in range((len(request.token_ids) - 1) // self.block_tokens):
            block_id = self.pool.find(self._digest(request, index))
            if block_id is None:
                break
            hits.append(block_id)
        return hits

    def _digest(self, request: Request, index: int) -> bytes:
        """Digest of block `index` and all before it; tokens never change once appended."""
        digests = request.block_digests
        while len(digests) <= index:
            start = len(digests) * self.block_tokens
            content = array("q", request.token_ids[start : start + self.block_tokens]).tobytes()
            parent = digests[-1] if digests else b""
            digests.append(blake2b(parent + content, digest_size=_DIGEST_BYTES).digest())
        return digests[index]
