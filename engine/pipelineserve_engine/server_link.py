"""A stage's connection to the server: commands in, reports and signs of life out."""

import threading
from pathlib import Path

import msgspec
import zmq

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine.remote.keys import read_group_key, secure_client
from pipelineserve_engine.remote.messages import MAX_COMMAND_BYTES
from pipelineserve_engine.stage_messages import (
    FailureReport,
    HeartbeatReport,
    StageCommand,
    StageReport,
)
from pipelineserve_engine.worker_settings import WorkerSettings

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


class ServerLink:
    """The sockets of one stage.

    Attributes:
        commands: of the server.
    """

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
        self.commands = CommandSocket(
            self._connect(zmq.PULL, settings.endpoints.command_address), self._reports
        )

    def start_heartbeats(self) -> None:
        """Send signs of life from a thread: its socket is its own, and torch lets it run."""
        message = msgspec.msgpack.encode(HeartbeatReport(self._settings.stage_index))

        def beat() -> None:
            with self._connect(zmq.PUSH, self._settings.endpoints.report_address) as socket:
                socket.send(message)
                while not self._is_ending.wait(_HEARTBEAT_PERIOD_S):
                    socket.send(message, zmq.DONTWAIT)

        threading.Thread(target=beat, name="heartbeats", daemon=True).start()

    def report(self, report: StageReport) -> None:
        """Tell the server."""
        self._reports.send(msgspec.msgpack.encode(report))

    def report_failure(self, message: str) -> None:
        """Say why this stage ends."""
        self.report(FailureReport(self._settings.stage_index, message))

    def end(self) -> None:
        """Stop the heartbeats."""
        self._is_ending.set()

    def _connect(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.maxmsgsize = MAX_COMMAND_BYTES
        socket.ipv6 = "[" in address
        if self._key is not None:
            secure_client(socket, self._key, self._settings.endpoints.generation)
        socket.connect(address)
        return socket
