"""The seam between the scheduler's loop and the stages that run its micro-batches."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch

from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve_engine.request_sampling import RequestSampling
from pipelineserve_engine.stage_messages import (
    PieceCommand,
    ReadyReport,
    StageReport,
    StepCommand,
    StepReport,
)
from pipelineserve_engine.stage_runner import StageRunner


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
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait for `wake` only, up to `timeout_s`; the stages may be gone."""
        ...

    def wake(self) -> None:
        """Make a waiting `receive` or `wait` return; may be called from any thread."""
        ...


class InlineExecutor:
    """All stages in this process, one after the other: for tests and for comparisons."""

    def __init__(self, stages: Sequence[StageRunner], clock: Callable[[], float]) -> None:
        self._stages = stages
        self._clock = clock
        self._reports: list[StageReport] = []

    def send(self, command: StepCommand) -> None:
        """Run the micro-batch through all stages now."""
        hidden: torch.Tensor | None = None
        for stage_index, stage in enumerate(self._stages):
            start_s = self._clock()
            output = stage.run(command, hidden)
            hidden = output.hidden
            self._reports.append(
                StepReport(
                    stage_index=stage_index,
                    sequence=command.sequence,
                    slot_index=command.slot_index,
                    start_s=start_s,
                    end_s=self._clock(),
                    token_ids=output.token_ids,
                    extras=output.extras,
                )
            )

    def receive(self, timeout_s: float) -> list[StageReport]:  # noqa: ARG002 - never waits
        """Return the reports of what was sent since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def restart(self) -> None:
        """Be ready again at once; what was in flight is dropped."""
        self._reports = [
            ReadyReport(stage_index, 0, 0, 0) for stage_index in range(len(self._stages))
        ]

    def wait(self, timeout_s: float) -> None:
        """Never waits."""

    def wake(self) -> None:
        """Nothing waits."""


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
                block_ids=piece.block_ids,
                samples=piece.samples,
                sampling=sampling_of[piece.request_id].spec(piece.output_index)
                if piece.samples
                else None,
            )
            for piece in micro_batch.pieces
        ),
    )
