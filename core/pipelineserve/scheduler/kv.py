"""KV blocks of requests: growing with the tokens, sharing prefixes, giving back.

Blocks are published when the micro-batch that fills them is composed, not when it completes: every
stage executes micro-batches in order, so whoever finds the block comes after it was written.
"""

from array import array
from hashlib import blake2b

from pipelineserve.scheduler.blocks import BlockPool
from pipelineserve.scheduler.requests import Request

_DIGEST_BYTES = 16


class KvLedger:
    """Which blocks each request holds; the only caller of the pool."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.pool = BlockPool(num_blocks)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-num_tokens // self.block_tokens)

    def num_missing(self, request: Request, num_tokens: int) -> int:
        """Blocks that the request lacks to hold its first `num_tokens` tokens."""
        return max(0, self.num_blocks_for(num_tokens) - len(request.block_ids))

    def num_wanted_to_start(self, request: Request) -> int:
        """Free blocks that prefilling all of a waiting request would take, prefix hits deducted.

        A hit that nobody references now lies in the free list, so it is wanted like a new block.
        """
        total = self.num_blocks_for(len(request.token_ids))
        shared = sum(1 for hit in self._prefix_hits(request) if self.pool.num_references(hit) > 0)
        return total - shared

    def take_prefix(self, request: Request) -> int:
        """Reference the cached blocks of the request's prefix; return the tokens they hold.

        At least one token stays to be computed, since a sample needs its logits.
        """
        hits = self._prefix_hits(request)
        for block_id in hits:
            self.pool.reference(block_id)
        request.block_ids = hits
        request.num_published = len(hits)
        return len(hits) * self.block_tokens

    def grow(self, request: Request, num_tokens: int) -> bool:
        """Allocate blocks so that the request holds `num_tokens` tokens; all of them or none."""
        num_missing = self.num_missing(request, num_tokens)
        if num_missing > self.pool.num_free:
            return False
        after = request.block_ids[-1] if request.block_ids else None
        request.block_ids += self.pool.allocate(num_missing, after)
        return True

    def publish(self, request: Request) -> None:
        """Offer the request's full blocks, up to what was issued, to the prefix cache."""
        num_full = request.num_issued // self.block_tokens
        for index in range(request.num_published, num_full):
            self.pool.publish(request.block_ids[index], self._digest(request, index))
        request.num_published = max(request.num_published, num_full)

    def release(self, request: Request) -> None:
        """Give back all blocks; the request must be in no micro-batch in flight.

        The tail goes first, so that eviction eats a prefix from its end.
        """
        for block_id in reversed(request.block_ids):
            self.pool.release(block_id)
        request.block_ids = []
        request.num_published = 0

    def _prefix_hits(self, request: Request) -> list[int]:
        hits: list[int] = []
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
