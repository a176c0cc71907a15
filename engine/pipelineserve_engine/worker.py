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

from pipelineserve.errors import PipelineServeError
from pipelineserve_engine.kv_cache import HostPoolShape
from pipelineserve_engine.stage_messages import (
    FailureReport,
    HeartbeatReport,
    ReadyReport,
    StageCommand,
    StageReport,
    StepCommand,
    StepReport,
)
from pipelineserve_engine.stage_model import StageModel, StageShape
from pipelineserve_engine.stage_runner import StageRunner
from pipelineserve_engine.transport import DistributedTransport, NoTransport, Transport

_RENDEZVOUS_FILE = "rendezvous"
_ORPHAN_CHECK_PERIOD_S = 1.0
_HEARTBEAT_PERIOD_S = 0.5


class WorkerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one stage's process is started with.

    Attributes:
        model_folder: holds config.json and safetensors.
        stage_index: from 0.
        num_stages: of the pipeline.
        num_slots: micro-batches in flight at once.
        first_layer_index: of this stage.
        num_layers: of this stage.
        num_blocks: KV blocks, the same on every stage.
        num_host_blocks: host blocks for KV that is swapped out, the same on every stage.
        block_tokens: tokens of one block.
        dtype: torch's name of it, for example float32.
        num_threads: torch's threads in this process.
        command_address: ZeroMQ address to pull commands from.
        report_address: ZeroMQ address to push reports to.
        shared_folder: holds the sockets, and the file through which the stages find each other;
            removed by stages that outlive the server.
        server_pid: the worker ends when this is no longer its parent.
    """

    model_folder: str
    stage_index: int
    num_stages: int
    num_slots: int
    first_layer_index: int
    num_layers: int
    num_blocks: int
    num_host_blocks: int
    block_tokens: int
    dtype: str
    num_threads: int
    command_address: str
    report_address: str
    shared_folder: str
    server_pid: int


class Worker:
    """One stage: its model, its links, its sockets."""

    def __init__(self, settings: WorkerSettings, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._settings = settings
        self._context = context
        self._is_ending = threading.Event()
        self._commands = context.socket(zmq.PULL)
        self._commands.connect(settings.command_address)
        self._reports = context.socket(zmq.PUSH)
        self._reports.connect(settings.report_address)
        self._decoder = msgspec.msgpack.Decoder(StageCommand)
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
        while isinstance(command := self._next_command(), StepCommand):
            self._step(command, runner, transport)
        transport.close()

    def start_heartbeats(self) -> None:
        """Send signs of life from a thread: its socket is its own, and torch lets it run."""
        message = msgspec.msgpack.encode(HeartbeatReport(self._settings.stage_index))

        def beat() -> None:
            with self._context.socket(zmq.PUSH) as socket:
                socket.connect(self._settings.report_address)
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
            device=torch.device("cpu"),
            host_pool=HostPoolShape(self._settings.num_host_blocks, self._settings.block_tokens),
        )

    def _join(self, hidden_size: int, dtype: torch.dtype) -> Transport:
        if self._settings.num_stages == 1:
            return NoTransport()
        return DistributedTransport(
            stage_index=self._settings.stage_index,
            num_stages=self._settings.num_stages,
            rendezvous=Path(self._settings.shared_folder) / _RENDEZVOUS_FILE,
            hidden_size=hidden_size,
            dtype=dtype,
            num_slots=self._settings.num_slots,
        )

    def _next_command(self) -> StageCommand:
        return self._decoder.decode(self._commands.recv())

    def _step(self, command: StepCommand, runner: StageRunner, transport: Transport) -> None:
        hidden = None if self._is_first else transport.receive(command.num_tokens)
        start_s = time.monotonic()
        output = runner.run(command, hidden)
        end_s = time.monotonic()
        if output.hidden is not None:
            transport.send(output.hidden)
        self._report(
            StepReport(
                stage_index=self._settings.stage_index,
                sequence=command.sequence,
                slot_index=command.slot_index,
                start_s=start_s,
                end_s=end_s,
                token_ids=output.token_ids,
                extras=output.extras,
            )
        )

    def _report(self, report: StageReport) -> None:
        self._reports.send(msgspec.msgpack.encode(report))


def follow_server(server_pid: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone`, from a thread, once `server_pid` is no longer the parent.

    A thread, because the stage may be waiting for a neighbour that is gone as well.
    """

    def watch() -> None:
        while os.getppid() == server_pid:
            time.sleep(_ORPHAN_CHECK_PERIOD_S)
        on_gone()

    threading.Thread(target=watch, name="follow-server", daemon=True).start()


def _end_as_orphan(shared_folder: Path) -> NoReturn:
    """End at once: nobody is left to report to, or to clean up."""
    shutil.rmtree(shared_folder, ignore_errors=True)
    os._exit(1)


def main() -> int:
    """Run the worker of the settings in the first argument; 0 after an orderly end."""
    # Ctrl-C reaches the whole process group; the server decides when its stages end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settings = msgspec.json.decode(sys.argv[1], type=WorkerSettings)
    follow_server(settings.server_pid, lambda: _end_as_orphan(Path(settings.shared_folder)))
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
