"""A stage's steps in order, with the receives of later ones under way while one computes."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from pipelineserve_engine.stage_messages import StageCommand, StepCommand, StepReport, StopCommand
from pipelineserve_engine.stage_runner import StageOutput
from pipelineserve_engine.transport.protocol import Reception, Transport


class CommandSource(Protocol):
    """Where a stage's commands come from, in order."""

    def next(self) -> StageCommand:
        """Wait for the next command."""
        ...

    def next_if_there(self) -> StageCommand | None:
        """The next command, or None if it has not come yet."""
        ...


class Runner(Protocol):
    """Computes one stage's part of a micro-batch."""

    def run(self, command: StepCommand, hidden: torch.Tensor | None) -> StageOutput:
        """See `StageRunner.run`."""
        ...


@dataclass(frozen=True, slots=True)
class _PostedStep:
    """A step whose input is on its way; None on the first stage."""

    command: StepCommand
    reception: Reception | None


class StepLoop:
    """Takes commands, posts their receives ahead, computes, sends on, reports.

    Args:
        stage_index: of this stage.
        commands: of the server.
        transport: the stage's links.
        runner: its computation.
        report: called after each step.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        *,
        stage_index: int,
        commands: CommandSource,
        transport: Transport,
        runner: Runner,
        report: Callable[[StepReport], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage_index = stage_index
        self._commands = commands
        self._transport = transport
        self._runner = runner
        self._report = report
        self._clock = clock
        self._posted: deque[_PostedStep] = deque()
        self._is_stopping = False

    def run(self) -> None:
        """Return after a stop command, when all steps before it are done."""
        while self._posted or not self._is_stopping:
            if not self._posted:
                self._take(self._commands.next())
            self._take_waiting()
            if self._posted:
                self._step(self._posted.popleft())

    def _take_waiting(self) -> None:
        """Post the receive of every step whose command has come."""
        while not self._is_stopping and (command := self._commands.next_if_there()) is not None:
            self._take(command)

    def _take(self, command: StageCommand) -> None:
        match command:
            case StopCommand():
                self._is_stopping = True
            case StepCommand():
                is_first = self._stage_index == 0
                reception = None if is_first else self._transport.post_receive(command.num_tokens)
                self._posted.append(_PostedStep(command, reception))

    def _step(self, step: _PostedStep) -> None:
        hidden = None if step.reception is None else step.reception.wait()
        start_s = self._clock()
        output = self._runner.run(step.command, hidden)
        end_s = self._clock()
        if step.reception is not None:
            step.reception.release()
        if output.hidden is not None:
            self._transport.send(output.hidden)
        self._report(
            StepReport(
                stage_index=self._stage_index,
                sequence=step.command.sequence,
                slot_index=step.command.slot_index,
                start_s=start_s,
                end_s=end_s,
                token_ids=output.token_ids,
                extras=output.extras,
            )
        )
