"""The process of one stage: takes commands in order, computes, hands on.

Run as `python -m pipelineserve_engine.worker SETTINGS`, SETTINGS being JSON of `WorkerSettings`.
"""

import faulthandler
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
import torch
import zmq

from pipelineserve.errors import EngineUnavailableError, PipelineServeError
from pipelineserve_engine.kv_cache import HostPoolShape
from pipelineserve_engine.remote.keys import read_group_key, secure_client
from pipelineserve_engine.remote.messages import MAX_COMMAND_BYTES
from pipelineserve_engine.stage_messages import (
    FailureReport,
    HeartbeatReport,
    ReadyReport,
    StageCommand,
    StageReport,
    StepCommand,
)
from pipelineserve_engine.stage_model import StageModel, StageShape
from pipelineserve_engine.stage_runner import StageOutput, StageRunner
from pipelineserve_engine.step_loop import StepLoop
from pipelineserve_engine.transport.opening import open_transport
from pipelineserve_engine.transport.protocol import Transport
from pipelineserve_engine.worker_settings import WorkerSettings

_ORPHAN_CHECK_PERIOD_S = 1.0
_HEARTBEAT_PERIOD_S = 0.5


class CommandSocket:
    """A stage's commands as they come over ZeroMQ."""

    def __init__(self, commands: zmq.Socket[bytes], reports: zmq.Socket[bytes]) -> None:
        self._commands = commands
        self._decoder = msgspec.msgpack.Decoder(StageCommand)
        self._poller = zmq.Poller()
        self._poller.register(commands, zmq.POLLIN)
        # ZeroMQ connects again by itself, but what was under way is lost.
        self._losses = [
            socket.get_monitor_socket(zmq.Event.DISCONNECTED) for socket in (commands, reports)
        ]
        for loss in self._losses:
            self._poller.register(loss, zmq.POLLIN)

    def next(self) -> StageCommand:
        """Wait for the next command."""
        while (command := self._poll(None)) is None:
            pass  # woken without one
        return command

    def next_if_there(self) -> StageCommand | None:
        """The next command, or None if it has not come yet."""
        return self._poll(0)

    def _poll(self, timeout_ms: int | None) -> StageCommand | None:
        ready = dict(self._poller.poll(timeout_ms))
        if any(loss in ready for loss in self._losses):
            raise EngineUnavailableError("the connection to the server is lost")
        if self._commands not in ready:
            return None
        command: StageCommand = self._decoder.decode(self._commands.recv())
        return command


class _FinishingRunner:
    """Ends each step when the GPU has computed it, so that its time is the step's."""

    def __init__(self, runner: StageRunner, device: torch.device) -> None:
        self._runner = runner
        self._device = device

    def run(self, command: StepCommand, hidden: torch.Tensor | None) -> StageOutput:
        """See `StageRunner.run`."""
        output = self._runner.run(command, hidden)
        torch.cuda.current_stream(self._device).synchronize()
        return output


class Worker:
    """One stage: its model, its links, its sockets."""

    def __init__(self, settings: WorkerSettings, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._settings = settings
        self._context = context
        self._is_ending = threading.Event()
        self._key = (
            None
            if settings.group_key_file is None
            else read_group_key(Path(settings.group_key_file))
        )
        self._reports = self._connect(zmq.PUSH, settings.endpoints.report_address)
        self._commands = CommandSocket(
            self._connect(zmq.PULL, settings.endpoints.command_address), self._reports
        )
        self._device = torch.device(settings.device)
        self._is_first = settings.stage_index == 0
        self._is_last = settings.stage_index == settings.num_stages - 1

    def run(self) -> None:
        """Load, report ready, then run commands until told to stop."""
        model = StageModel(Path(self._settings.model_folder), self._stage_shape())
        runner = StageRunner(model, self._settings.block_tokens)
        transport = self._join(model.hidden_size, model.shape.dtype)
        self._report(
            ReadyReport(
                stage_index=self._settings.stage_index,
                pid=os.getpid(),
                weight_bytes=model.weight_bytes,
                kv_bytes=model.kv_bytes,
                copy_s_per_block=model.measure_copy_s(time.monotonic),
            )
        )
        StepLoop(
            stage_index=self._settings.stage_index,
            commands=self._commands,
            transport=transport,
            runner=_FinishingRunner(runner, self._device)
            if self._device.type == "cuda"
            else runner,
            report=self._report,
        ).run()
        transport.close()

    def start_heartbeats(self) -> None:
        """Send signs of life from a thread: its socket is its own, and torch lets it run."""
        message = msgspec.msgpack.encode(HeartbeatReport(self._settings.stage_index))

        def beat() -> None:
            with self._connect(zmq.PUSH, self._settings.endpoints.report_address) as socket:
                while not self._is_ending.wait(_HEARTBEAT_PERIOD_S):
                    socket.send(message, zmq.DONTWAIT)

        threading.Thread(target=beat, name="heartbeats", daemon=True).start()

    def end(self) -> None:
        """Stop the heartbeats."""
        self._is_ending.set()

    def report_failure(self, message: str) -> None:
        """Say why this stage ends."""
        self._report(FailureReport(self._settings.stage_index, message))

    def _stage_shape(self) -> StageShape:
        return StageShape(
            first_layer_index=self._settings.first_layer_index,
            num_layers=self._settings.num_layers,
            is_first=self._is_first,
            is_last=self._is_last,
            num_kv_positions=self._settings.num_blocks * self._settings.block_tokens,
            dtype=getattr(torch, self._settings.dtype),
            device=self._device,
            host_pool=HostPoolShape(self._settings.num_host_blocks, self._settings.block_tokens),
        )

    def _join(self, hidden_size: int, dtype: torch.dtype) -> Transport:
        return open_transport(
            self._settings.endpoints.links,
            stage_index=self._settings.stage_index,
            num_stages=self._settings.num_stages,
            num_slots=self._settings.num_slots,
            hidden_size=hidden_size,
            dtype=dtype,
            device=self._device,
        )

    def _connect(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.maxmsgsize = MAX_COMMAND_BYTES
        socket.ipv6 = "[" in address
        if self._key is not None:
            secure_client(socket, self._key, self._settings.endpoints.generation)
        socket.connect(address)
        return socket

    def _report(self, report: StageReport) -> None:
        self._reports.send(msgspec.msgpack.encode(report))


def follow_parent(parent_pid: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone`, from a thread, once `parent_pid` is no longer the parent.

    A thread, because the stage may be waiting for a neighbour that is gone as well.
    """

    def watch() -> None:
        while os.getppid() == parent_pid:
            time.sleep(_ORPHAN_CHECK_PERIOD_S)
        on_gone()

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()


def _end_as_orphan(shared_folder: str | None) -> NoReturn:
    """End at once: nobody is left to report to, or to clean up."""
    if shared_folder is not None:
        shutil.rmtree(shared_folder, ignore_errors=True)
    os._exit(1)


def main() -> int:
    """Run the worker of the settings in the first argument; 0 after an orderly end."""
    # Ctrl-C reaches the whole process group; the server decides when its stages end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settings = msgspec.json.decode(sys.argv[1], type=WorkerSettings)
    follow_parent(settings.parent_pid, lambda: _end_as_orphan(settings.endpoints.shared_folder))
    torch.set_num_threads(settings.num_threads)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    worker = Worker(settings, context)
    # The server asks for all stacks when the stages are stuck.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        worker.start_heartbeats()
        worker.run()
    except PipelineServeError as error:
        worker.report_failure(str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - the server must learn of every end of a stage
        # The trace is for the log; clients are told the rest.
        traceback.print_exc()
        worker.report_failure(f"{type(error).__name__}: {error}")
        return 1
    finally:
        worker.end()
        context.destroy(linger=1000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
