"""A stage's time is what it computes, without its wait for the stage before."""

from types import SimpleNamespace
from typing import Any

import pytest

from pipelineserve_engine.addon.ledger import StageReport
from pipelineserve_engine.addon.stopwatch import HostStopwatch
from pipelineserve_engine.vllm.notes import TurnNote, attach
from pipelineserve_engine.vllm.reports import Reporter
from pipelineserve_engine.vllm.stages import StageTimer, time_runner
from vllm_fakes import FakeOutput


class Stage:
    """A model runner in a worker; a second passes with each thing that it does."""

    def __init__(self, *, samples: bool) -> None:
        self.now_s = 0.0
        self.sent: list[tuple[str, StageReport]] = []
        self.timer = StageTimer(
            1, samples=samples, stopwatch=HostStopwatch(lambda: self.now_s), send=self.send
        )

    def send(self, path: str, reports: list[StageReport]) -> None:
        """Tell."""
        self.sent += [(path, report) for report in reports]

    def second(self, *_: object) -> None:
        """Something takes one."""
        self.now_s += 1.0

    def run(self, output: FakeOutput, tensors: Any = None) -> None:
        """A micro-batch."""

        def original(scheduler_output: FakeOutput, tensors: Any) -> str:
            assert scheduler_output is output
            if tensors is not None:
                tensors.wait_for_comm()
            self.second()
            return "result"

        assert self.timer.execute_model(original, output, tensors) == "result"


def a_micro_batch(turn: int = 7) -> FakeOutput:
    output = FakeOutput({"a": 3})
    attach(output, TurnNote(turn, 64, "/steps"))
    return output


def test_the_first_stage_is_done_when_it_has_computed() -> None:
    stage = Stage(samples=False)
    stage.run(a_micro_batch())
    assert stage.sent == [("/steps", StageReport(1, 7, 3, 64, 0.0, 1.0))]


def test_the_last_stage_begins_when_activations_are_there_and_is_done_when_it_has_sampled() -> None:
    stage = Stage(samples=True)
    stage.run(a_micro_batch(), SimpleNamespace(wait_for_comm=stage.second))
    assert not stage.sent
    stage.timer.sample_tokens(stage.second, None)
    assert stage.sent == [("/steps", StageReport(1, 7, 3, 64, 1.0, 3.0))]


def test_what_is_not_of_a_controlled_turn_is_not_told() -> None:
    stage = Stage(samples=False)
    stage.run(FakeOutput({"a": 3}))
    empty = FakeOutput({})
    attach(empty, TurnNote(8, 64, "/steps"))
    stage.run(empty)
    stage.timer.sample_tokens(stage.second, None)
    assert not stage.sent


class Runner:
    """vLLM's model runner."""

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        """As vLLM's."""
        return scheduler_output, intermediate_tensors

    def sample_tokens(self, grammar_output: Any) -> Any:
        """As vLLM's."""
        return grammar_output


class ChangedRunner(Runner):
    """Of another version."""

    def execute_model(self, scheduler_output: Any, tensors: Any = None) -> Any:
        """Calls something otherwise."""
        return scheduler_output, tensors


def test_a_runner_is_timed_and_does_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(Reporter, "send", lambda *arguments: sent.append(arguments[1]))
    runner, output = Runner(), a_micro_batch()
    time_runner(runner, 0, samples=False, device="cpu")
    assert runner.execute_model(output) == (output, None)
    assert runner.sample_tokens("grammar") == "grammar"
    assert sent == ["/steps"]


def test_a_runner_that_is_not_as_expected_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    runner = ChangedRunner()
    time_runner(runner, 0, samples=False, device="cpu")
    assert "execute_model" not in vars(runner)
    assert "step times of stage 0 cannot be told" in caplog.text
