"""What passes between the scheduler, its caller and the executor; all of it frozen.

There are a piece and an emission for every token. Decodes therefore travel as columns, and pieces
and emissions are made of them when somebody looks: the stages do, the twin does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.scheduler.requests import FinishReason, Request, RequestRecord

# What a named tuple's own constructor calls; calling it at once more than halves the time.
new_tuple = tuple.__new__


class Piece(NamedTuple):
    """Consecutive tokens of one request inside one micro-batch.

    Attributes:
        request_id: whose tokens they are.
        start: position of the first of them in the request.
        token_ids: at least one.
        block_ids: the request's KV blocks from position 0 up to the end of this piece.
        is_decode: one token whose successor is sampled, as opposed to a prefill piece.
        samples: whether a token is sampled after the last one.
        output_index: how many output tokens the request has before that sample.
    """

    request_id: str
    start: int
    token_ids: tuple[int, ...]
    block_ids: tuple[int, ...]
    is_decode: bool
    samples: bool
    output_index: int


class CopyDirection(Enum):
    """Which way a KV block is copied."""

    OUT = "out"  # device to host
    IN = "in"  # host to device


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """One KV block between device and host; each stage copies its own layers' part."""

    direction: CopyDirection
    device_block_id: int
    host_block_id: int


class Decodes:
    """The decodes of one micro-batch, column by column.

    Args:
        requests: whose they are. Of each only what never changes is read here: its name, the length
            of its prompt, and tokens that it has already.
        starts: position of the token of each.
        block_ids: KV blocks of each, as in `Piece`.
    """

    __slots__ = ("_block_ids", "_requests", "_starts")

    def __init__(
        self,
        requests: Sequence[Request],
        starts: Sequence[int],
        block_ids: Sequence[tuple[int, ...]],
    ) -> None:
        self._requests = requests
        self._starts = starts
        self._block_ids = block_ids

    def __len__(self) -> int:
        return len(self._requests)

    def __repr__(self) -> str:
        return f"Decodes{self.pieces()}"

    @property
    def context_tokens(self) -> int:
        """Tokens that they attend to, the own one of each included."""
        return sum(self._starts) + len(self._starts)

    def pieces(self) -> tuple[Piece, ...]:
        """Row by row."""
        columns = zip(self._requests, self._starts, self._block_ids, strict=True)
        rows = [
            (
                request.new.request_id,
                start,
                (request.token_ids[start],),
                block_ids,
                True,  # is_decode
                True,  # samples
                start + 1 - request.num_prompt_tokens,
            )
            for request, start, block_ids in columns
        ]
        return tuple(map(new_tuple, repeat(Piece), rows))


@dataclass(frozen=True)
class MicroBatch:
    """What travels through the stages together; executed in the order of `sequence`.

    No request occurs twice. Every stage executes `copies`, in their order, before it computes; the
    requests that they serve need not be among the pieces.

    Attributes:
        prefills: pieces of prompts; they come after the decodes.
    """

    sequence: int
    slot_index: int
    decodes: Decodes
    prefills: tuple[Piece, ...]
    chunk: ChunkDecision
    copies: tuple[BlockCopy, ...] = ()

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """All of it, decodes first."""
        return self.decodes.pieces() + self.prefills

    @property
    def num_tokens(self) -> int:
        """Tokens of all pieces; never above `chunk.chunk_tokens`."""
        return len(self.decodes) + sum([len(piece.token_ids) for piece in self.prefills])

    @property
    def num_decodes(self) -> int:
        """How many of the pieces decode; they are the first ones."""
        return len(self.decodes)

    @property
    def num_samples(self) -> int:
        """Tokens that come back."""
        return len(self.decodes) + sum([piece.samples for piece in self.prefills])

    @property
    def features(self) -> StepFeatures:
        """Attention's work in it."""
        squares = products = 0
        for piece in self.prefills:
            length = len(piece.token_ids)
            squares += length * length
            products += piece.start * length
        return StepFeatures(self.decodes.context_tokens, squares, products, self.num_decodes)

    @property
    def sampling_pieces(self) -> tuple[Piece, ...]:
        """The pieces that a token comes back for, in order."""
        return tuple(piece for piece in self.pieces if piece.samples)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came back of a micro-batch: one token per sampling piece, in their order."""

    sequence: int
    token_ids: tuple[int, ...]


class Emission(NamedTuple):
    """One step of a request's output.

    Attributes:
        request_id: whose output it is.
        token_id: the token, or None when the request ended without a further one.
        record: set when the request ended with this.
        ttft_s: arrival to this token, if it is the request's first.
        gap_s: time since the request's token before, if there was one.
        num_cached_tokens: prompt tokens that came from the prefix cache.
    """

    request_id: str
    token_id: int | None
    record: RequestRecord | None = None
    ttft_s: float | None = None
    gap_s: float | None = None
    num_cached_tokens: int = 0

    @property
    def finish(self) -> FinishReason | None:
        """Why the request ended, if it did."""
        return None if self.record is None else self.record.finish


class RejectReason(Enum):
    """Why a request was not accepted."""

    QUEUE_FULL = "queue_full"
    EMPTY_PROMPT = "empty_prompt"
    PROMPT_TOO_LONG = "prompt_too_long"
    NO_OUTPUT_ASKED = "no_output_asked"
    DUPLICATE_ID = "duplicate_id"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request waits; `max_output_tokens` is what the context leaves of what was asked."""

    request_id: str
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request was not accepted and left no trace but a count; `limit` is the bound it met."""

    request_id: str
    reason: RejectReason
    limit: int


@dataclass(frozen=True, slots=True)
class Census:
    """Counts of requests since the start; `is_conserved` must hold after every call."""

    arrived: int
    rejected: int
    waiting: int
    running: int
    finished: int
    cancelled: int
    failed: int

    @property
    def is_conserved(self) -> bool:
        """Whether every request that arrived is accounted for exactly once."""
        ended = self.rejected + self.finished + self.cancelled + self.failed
        return self.arrived == ended + self.waiting + self.running
