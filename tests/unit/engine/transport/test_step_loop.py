"""Receives are posted before the computation of the step before them ends."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from pipelineserve_engine.stage_messages import (
    PieceCommand,
    StageCommand,
    StepCommand,
    StepReport,
    StopCommand,
)
from pipelineserve_engine.stage_runner import StageOutput
from pipelineserve_engine.step_loop import StepLoop


def a_step(sequence: int) -> StepCommand:
    """A micro-batch of as many tokens as its sequence says, plus one."""
    return StepCommand(sequence, 0, (PieceCommand(0, (5,) * (sequence + 1), b"", False, None),))


@dataclass
class _Script:
    """Commands in groups: each group has come once the one before it is worked off."""

    groups: Sequence[Sequence[StageCommand]]
    calls: list[str] = field(default_factory=list)
    reports: list[StepReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._groups = deque(deque(group) for group in self.groups)

    def next(self) -> StageCommand:
        self.calls.append("wait for a command")
        while not self._groups[0]:
            self._groups.popleft()
        return self._groups[0].popleft()

    def next_if_there(self) -> StageCommand | None:
        return self._groups[0].popleft() if self._groups[0] else None

    def post_receive(self, num_tokens: int) -> "_ScriptedReception":
        self.calls.append(f"post {num_tokens}")
        return _ScriptedReception(self, num_tokens)

    def send(self, hidden: torch.Tensor) -> None:
        self.calls.append(f"send {len(hidden)}")

    def close(self) -> None:
        self.calls.append("close")

    def run(self, command: StepCommand, hidden: torch.Tensor | None) -> StageOutput:
        assert hidden is None or len(hidden) == command.num_tokens
        self.calls.append(f"compute {command.num_tokens}")
        return StageOutput(torch.zeros(command.num_tokens, 2), None)


@dataclass
class _ScriptedReception:
    script: _Script
    num_tokens: int

    def wait(self) -> torch.Tensor:
        self.script.calls.append(f"wait {self.num_tokens}")
        return torch.zeros(self.num_tokens, 2)

    def release(self) -> None:
        self.script.calls.append(f"release {self.num_tokens}")


def run(stage_index: int, *groups: Sequence[StageCommand]) -> _Script:
    script = _Script(groups)
    StepLoop(
        stage_index=stage_index,
        commands=script,
        transport=script,
        runner=script,
        report=script.reports.append,
        clock=lambda: 0.0,
    ).run()
    return script


def test_the_receive_of_the_next_step_is_under_way_while_one_computes() -> None:
    script = run(1, [a_step(0), a_step(1)], [StopCommand()])
    assert script.calls == [
        *("wait for a command", "post 1", "post 2"),
        *("wait 1", "compute 1", "release 1", "send 1"),
        *("wait 2", "compute 2", "release 2", "send 2"),
        "wait for a command",
    ]
    assert [report.sequence for report in script.reports] == [0, 1]


def test_a_step_does_not_wait_for_a_command_that_has_not_come() -> None:
    script = run(1, [a_step(0)], [a_step(1), StopCommand()])
    assert script.calls[:6] == [
        *("wait for a command", "post 1", "wait 1", "compute 1", "release 1", "send 1")
    ]


def test_steps_before_a_stop_are_run_and_none_after_it() -> None:
    script = run(1, [a_step(0), a_step(1), StopCommand(), a_step(2)])
    assert [report.sequence for report in script.reports] == [0, 1]
    assert "post 3" not in script.calls


def test_the_first_stage_receives_nothing() -> None:
    script = run(0, [a_step(0), StopCommand()])
    assert script.calls == ["wait for a command", "compute 1", "send 1"]
