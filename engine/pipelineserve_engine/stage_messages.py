"""Messages between the server process and its stages: typed msgpack, never pickle."""

import msgspec


class SamplingSpec(msgspec.Struct, frozen=True, array_like=True):
    """How to draw one token; `temperature` > 0, since greedy is no spec at all."""

    temperature: float
    top_k: int
    top_p: float
    seed: int
    output_index: int


class PieceCommand(msgspec.Struct, frozen=True, array_like=True):
    """A piece as the stages need it; fields as in `pipelineserve.scheduler.messages.Piece`."""

    start: int
    token_ids: tuple[int, ...]
    block_ids: tuple[int, ...]
    samples: bool
    sampling: SamplingSpec | None


class StepCommand(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Run one micro-batch; every stage gets every command, in the same order."""

    sequence: int
    slot_index: int
    pieces: tuple[PieceCommand, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens of all pieces."""
        return sum(len(piece.token_ids) for piece in self.pieces)


class StopCommand(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End the worker after the steps before it."""


class ReadyReport(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A stage has loaded its weights and reached its neighbours."""

    stage_index: int
    pid: int
    weight_bytes: int
    kv_bytes: int


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
