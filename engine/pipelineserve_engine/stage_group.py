"""The worker processes of one pipeline: start, talk, notice their end, stop."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import zmq

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine.plan import PipelinePlan
from pipelineserve_engine.stage_messages import (
    FailureReport,
    ReadyReport,
    StageReport,
    StepCommand,
    StopCommand,
)
from pipelineserve_engine.worker import WorkerSettings

_STOP_TIMEOUT_S = 5.0
_CHECK_PERIOD_S = 0.5


class StageGroup:
    """One process per stage; an executor for the scheduler's loop.

    Args:
        plan: what each stage runs.

    Raises:
        EngineUnavailableError: from `wait_ready`, `send` and `receive`, when a stage has ended.
    """

    def __init__(self, plan: PipelinePlan) -> None:
        self._plan = plan
        # Only this user may enter, so only it can talk to the stages' sockets.
        self._folder = Path(tempfile.mkdtemp(prefix="pserve-"))
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._commands = [
            self._bind(zmq.PUSH, f"commands-{index}") for index in range(plan.num_stages)
        ]
        self._reports = self._bind(zmq.PULL, "reports")
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poller = zmq.Poller()
        self._poller.register(self._reports, zmq.POLLIN)
        self._poller.register(self._wake_read, zmq.POLLIN)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[StageReport] = msgspec.msgpack.Decoder(StageReport)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._next_check_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process id of each stage, in order."""
        return tuple(process.pid for process in self._processes)

    def start(self, on_ready: Callable[[ReadyReport], None]) -> None:
        """Start all stages and wait until each has loaded its weights.

        Args:
            on_ready: called with each stage's report as it comes.
        """
        for stage_index in range(self._plan.num_stages):
            self._processes.append(self._spawn(stage_index))
        num_missing = self._plan.num_stages
        while num_missing:
            for report in self.receive(_CHECK_PERIOD_S):
                match report:
                    case ReadyReport():
                        num_missing -= 1
                        on_ready(report)
                    case FailureReport():
                        raise EngineUnavailableError(report.text)

    def send(self, command: StepCommand) -> None:
        """Hand a micro-batch to every stage; returns at once."""
        message = self._encoder.encode(command)
        for socket in self._commands:
            socket.send(message)

    def receive(self, timeout_s: float) -> list[StageReport]:
        """Return reports that are there, or wait for one, for `wake`, or for `timeout_s`."""
        reports: list[StageReport] = []
        ready = dict(self._poller.poll(round(timeout_s * 1000)))
        if self._wake_read in ready:
            _drain(self._wake_read)
        if self._reports in ready:
            while self._reports.poll(0):
                reports.append(self._decoder.decode(self._reports.recv()))
        if not reports:
            self._check_processes()
        return reports

    def wake(self) -> None:
        """Make `receive` return; may be called from any thread."""
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            return  # the pipe is full of wakes that were not read yet: one is enough

    def stop(self) -> None:
        """End the stages: ask, then kill; remove what was left on disk."""
        if self._context.closed:
            return
        message = self._encoder.encode(StopCommand())
        for socket in self._commands:
            socket.send(message)
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._context.destroy(linger=0)
        os.close(self._wake_read)
        os.close(self._wake_write)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _bind(self, kind: int, name: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.bind(self._address(name))
        return socket

    def _address(self, name: str) -> str:
        return f"ipc://{self._folder / name}"

    def _spawn(self, stage_index: int) -> "subprocess.Popen[bytes]":
        plan = self._plan
        layers = plan.partition.layers_of(stage_index)
        settings = WorkerSettings(
            model_folder=str(plan.model_folder),
            stage_index=stage_index,
            num_stages=plan.num_stages,
            num_slots=plan.num_slots,
            first_layer_index=layers.start,
            num_layers=len(layers),
            num_blocks=plan.num_blocks,
            block_tokens=plan.block_tokens,
            dtype=plan.dtype,
            num_threads=plan.threads_per_stage,
            command_address=self._address(f"commands-{stage_index}"),
            report_address=self._address("reports"),
            rendezvous=str(self._folder / "rendezvous"),
            server_pid=os.getpid(),
        )
        command = [sys.executable, "-m", "pipelineserve_engine.worker"]
        return subprocess.Popen([*command, msgspec.json.encode(settings).decode()])

    def _check_processes(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + _CHECK_PERIOD_S
        for stage_index, process in enumerate(self._processes):
            code = process.poll()
            if code is not None:
                how = f"signal {-code}" if code < 0 else f"exit status {code}"
                raise EngineUnavailableError(f"stage {stage_index} ended with {how}")


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        return  # empty: all wakes are read
