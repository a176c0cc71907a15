"""Messages between the server process and its stages: typed msgpack, never pickle."""

from collections.abc import Iterable, Iterator
from struct import Struct

import msgspec

from pipelineserve.scheduler.messages import BlockCopy, CopyDirection
from pipelineserve_engine.generation import TokenLogprobs


class LogitAdjustments(msgspec.Struct, frozen=True, array_like=True):
    """Penalties and bias of one token, with the history that they look at.

    Stages keep nothing between steps, so a token that is computed again gets the same history.
    Buffers hold little-endian int32 (token ids, counts) or float32 (bias); ids are distinct.

    Attributes:
        repetition_penalty: for the tokens in `seen_token_ids`.
        frequency_penalty: per occurrence, for the tokens in `output_token_ids`.
        presence_penalty: once, for the tokens in `output_token_ids`.
        seen_token_ids: of prompt and output; empty if no penalty looks at them.
        output_token_ids: of the output; empty if no penalty looks at them.
        output_counts: how often each of `output_token_ids` was put out.
        bias_token_ids: whose logits the bias changes.
        bias: what is added to each.
    """

    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    seen_token_ids: bytes
    output_token_ids: bytes
    output_counts: bytes
    bias_token_ids: bytes
    bias: bytes


class SamplingSpec(msgspec.Struct, frozen=True, array_like=True):
    """How to choose one token; no spec at all is greedy, without anything else.

    Fields as in `SamplingParameters`; `seed` is 0 where nothing is drawn.
    """

    temperature: float
    top_k: int
    top_p: float
    seed: int
    output_index: int
    min_p: float = 0.0
    adjustments: LogitAdjustments | None = None
    num_top_logprobs: int | None = None


class PieceCommand(msgspec.Struct, frozen=True, array_like=True):
    """A piece as the stages need it; fields as in `pipelineserve.scheduler.messages.Piece`.

    `block_ids` is a buffer of little-endian int32: a long context has thousands.
    """

    start: int
    token_ids: tuple[int, ...]
    block_ids: bytes
    samples: bool
    sampling: SamplingSpec | None


class StepCommand(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Run one micro-batch; every stage gets every command, in the same order.

    `copies`, which come first, are packed by `pack_copies`.
    """

    sequence: int
    slot_index: int
    pieces: tuple[PieceCommand, ...]
    copies: bytes = b""

    @property
    def num_tokens(self) -> int:
        """Tokens of all pieces."""
        return sum(len(piece.token_ids) for piece in self.pieces)


_COPY = Struct("<3i")
_COPY_DIRECTIONS = (CopyDirection.OUT, CopyDirection.IN)


def pack_copies(copies: Iterable[BlockCopy]) -> bytes:
    """Three little-endian int32 each: direction (0 out, 1 in), device block, host block."""
    return b"".join(
        _COPY.pack(_COPY_DIRECTIONS.index(copy.direction), copy.device_block_id, copy.host_block_id)
        for copy in copies
    )


def unpack_copies(buffer: bytes) -> Iterator[BlockCopy]:
    """The copies that `pack_copies` was given."""
    for direction, device_block_id, host_block_id in _COPY.iter_unpack(buffer):
        yield BlockCopy(_COPY_DIRECTIONS[direction], device_block_id, host_block_id)


class StopCommand(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End the worker after the steps before it."""


class ReadyReport(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A stage has loaded its weights and reached its neighbours.

    `copy_s_per_block`: copying one KV block one way to or from the host; 0 without host blocks.
    """

    stage_index: int
    pid: int
    weight_bytes: int
    kv_bytes: int
    copy_s_per_block: float = 0.0


class SampleFailure(msgspec.Struct, frozen=True, array_like=True):
    """The token of one request could not be chosen; the other requests' tokens stand.

    Attributes:
        sample_index: among the micro-batch's sampling pieces.
        reason: for the client; holds nothing of its prompt.
    """

    sample_index: int
    reason: str


class SampleExtras(msgspec.Struct, frozen=True, array_like=True):
    """What comes back with the tokens of a micro-batch where there is more than token ids.

    Attributes:
        logprobs: one per token, None where not asked for; empty if nobody asked.
        failures: requests whose token is only a placeholder.
    """

    logprobs: tuple[TokenLogprobs | None, ...] = ()
    failures: tuple[SampleFailure, ...] = ()


class StepReport(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A stage has run a micro-batch; the last stage adds the sampled tokens.

    Times are of the host's monotonic clock: `start_s` when the input was there, `end_s` when the
    output was computed.
    """

    stage_index: int
    sequence: int
    slot_index: int
    start_s: float
    end_s: float
    token_ids: tuple[int, ...] | None
    extras: SampleExtras | None = None


class HeartbeatReport(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A stage's process runs, whatever its step does."""

    stage_index: int


class FailureReport(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A stage cannot go on; it ends after this."""

    stage_index: int
    message: str

    @property
    def text(self) -> str:
        """What a person is told."""
        return f"stage {self.stage_index} failed: {self.message.strip()}"


StageCommand = StepCommand | StopCommand
StageReport = ReadyReport | StepReport | HeartbeatReport | FailureReport
