"""The real worker of a stage, whose steps wait where a test says so.

A step waits inside the stage's computation while the file `hold-STAGE-SEQUENCE` is in the folder
named by HOLD_FOLDER; `reached-STAGE-SEQUENCE` appears there once it does. HOLD_REPEATS runs every
step that often, which changes no result and makes a tiny model as slow as a larger one.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
import torch

from engine_server import wait_until
from pipelineserve_engine import stage_work, worker
from pipelineserve_engine.stage_messages import StepCommand
from pipelineserve_engine.stage_runner import StageOutput, StageRunner
from pipelineserve_engine.worker_settings import WorkerSettings

MODULE = "held_worker"
_FOLDER = "HOLD_FOLDER"
_REPEATS = "HOLD_REPEATS"
_STAGE_INDEX = "HOLD_STAGE_INDEX"
_POLL_PERIOD_S = 0.01


def announce_support(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that are started from now on find the modules of this folder, as tests do."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


@dataclass(frozen=True)
class Steps:
    """The test's side: which steps wait.

    Attributes:
        folder: empty at first; the stages look into it.
    """

    folder: Path

    def announce(self, monkeypatch: pytest.MonkeyPatch, *, repeats: int = 1) -> None:
        """Let the stages of nurseries that are started from now on know."""
        monkeypatch.setenv(_FOLDER, str(self.folder))
        monkeypatch.setenv(_REPEATS, str(repeats))
        announce_support(monkeypatch)

    def hold(self, stage_index: int, sequence: int) -> None:
        """Let a step wait when it comes."""
        self._hold(stage_index, sequence).touch()

    def release(self, stage_index: int, sequence: int) -> None:
        """Let it go on."""
        self._hold(stage_index, sequence).unlink()

    def wait_reached(self, stage_index: int, sequence: int) -> None:
        """Return when the step waits."""
        path = self.folder / f"reached-{stage_index}-{sequence}"
        wait_until(path.exists, bool)

    def _hold(self, stage_index: int, sequence: int) -> Path:
        return self.folder / f"hold-{stage_index}-{sequence}"


class HeldRunner(StageRunner):
    """Waits before it computes."""

    def run(self, command: StepCommand, hidden: torch.Tensor | None) -> StageOutput:
        """Run one micro-batch once nothing holds it."""
        folder = Path(os.environ[_FOLDER])
        name = f"{os.environ[_STAGE_INDEX]}-{command.sequence}"
        hold = folder / f"hold-{name}"
        if hold.exists():
            (folder / f"reached-{name}").touch()
        while hold.exists():
            time.sleep(_POLL_PERIOD_S)
        for _ in range(int(os.environ[_REPEATS]) - 1):
            super().run(command, hidden)
        return super().run(command, hidden)


def main(settings: WorkerSettings, parent_pid: int) -> int:
    """As the real worker's."""
    os.environ[_STAGE_INDEX] = str(settings.stage_index)
    with mock.patch.object(stage_work, "StageRunner", HeldRunner):
        return worker.main(settings, parent_pid)
