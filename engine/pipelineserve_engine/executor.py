"""The seam between the scheduler's loop and the stages that run its micro-batches."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve_engine.request_sampling import RequestSampling
from pipelineserve_engine.stage_messages import (
    PieceCommand,
    StageReport,
    StepCommand,
    pack_copies,
)


class Executor(Protocol):
    """Carries micro-batches through the stages, in the order in which they are sent."""

    def send(self, command: StepCommand) -> None:
        """Start a micro-batch; returns at once."""
        ...

    def receive(self, timeout_s: float) -> list[StageReport]:
        """Return the reports that are there, or wait for one up to `timeout_s` seconds."""
        ...

    def restart(self) -> None:
        """Start all stages anew, without waiting; a ready report of each follows.

        Everything in flight and all KV is lost.

        Raises:
            StagesFailedError: they could not be started this time.
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait for `wake` only, up to `timeout_s`; the stages may be gone."""
        ...

    def wake(self) -> None:
        """Make a waiting `receive` or `wait` return; may be called from any thread."""
        ...


def command_of(micro_batch: MicroBatch, sampling_of: Mapping[str, RequestSampling]) -> StepCommand:
    """Translate a micro-batch for the stages.

    Args:
        micro_batch: as the scheduler composed it.
        sampling_of: by request id; knows the request's output so far.
    """
    return StepCommand(
        sequence=micro_batch.sequence,
        slot_index=micro_batch.slot_index,
        pieces=tuple(
            PieceCommand(
                start=piece.start,
                token_ids=piece.token_ids,
                block_ids=np.array(piece.block_ids, dtype="<i4").tobytes(),
                samples=piece.samples,
                sampling=sampling_of[piece.request_id].spec(piece.output_index)
                if piece.samples
                else None,
            )
            for piece in micro_batch.pieces
        ),
        copies=pack_copies(micro_batch.copies),
    )
