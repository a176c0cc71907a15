"""Runs one stage on this host, at the word of a leader on another.

Run as `python -m pipelineserve_engine.stage_host --help`.
"""

import argparse
import logging
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec
import zmq

from pipelineserve.errors import EngineUnavailableError, PipelineServeError
from pipelineserve_engine.local_process import LocalProcess
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.remote.addresses import parse_host_port, resolve, tcp_address
from pipelineserve_engine.remote.keys import GroupKey, read_group_key, secure_client
from pipelineserve_engine.remote.messages import (
    MAX_CONTROL_BYTES,
    IdleWord,
    KeepWord,
    LeaderWord,
    MemberStatus,
    RefusedWord,
    RunWord,
    StacksWord,
)
from pipelineserve_engine.stage_process import WORKER_MODULE, StageProcess
from pipelineserve_engine.worker_settings import WorkerSettings

_STATUS_PERIOD_S = 0.5
_CHECK_PERIOD_S = 0.1
_MAX_REFUSED_PERIOD_S = 5.0
# Longer than the leader's own patience: by then it has given up on this stage, or is gone.
_LEADER_PATIENCE_S = 10.0
# To make a new connection and have an answer, after this host itself stood still.
_LAST_ANSWER_S = 3.0
_UNANSWERED_S = 10.0
_RECONNECT_MS = 200
_MAX_RECONNECT_MS = 5000
_CONNECTION_HEARTBEAT_MS = 1000
_CONNECTION_TIMEOUT_MS = 5000
_QUEUED_STATUSES = 16

logger = logging.getLogger("pipelineserve_engine.stage_host")


@dataclass(frozen=True, slots=True)
class StageHostSettings:
    """What the flags say.

    Attributes:
        leader: HOST:PORT of its control socket.
        stage_index: of the stage to run.
        model_folder: on this host.
        address: of this host, as its neighbours and the leader's settings have it.
        group_key_file: the group's secret.
        group_epoch: of the group; the leader refuses others.
    """

    leader: str
    stage_index: int
    model_folder: Path
    address: str
    group_key_file: Path
    group_epoch: int


class StageHost:
    """One worker at most, and the connection to the leader.

    Args:
        settings: of this process.
        key: of the group.
        context: for the connection.
        worker: started and ended here.
        clock: seconds, monotonic.

    Raises:
        InvalidInputError: the leader is not given as HOST:PORT.
    """

    def __init__(
        self,
        settings: StageHostSettings,
        key: GroupKey,
        context: zmq.Context[zmq.Socket[bytes]],
        worker: StageProcess,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._leader = parse_host_port(settings.leader)
        self._instance_id = secrets.token_hex(8)
        self._worker = worker
        self._clock = clock
        self._generation = ""
        self._exit_code: int | None = None
        self._word_at_s: float | None = None
        self._echo_s: float | None = None
        self._asked_at_s: float | None = None
        self._unanswered_since_s: float | None = clock()
        self._next_status_s = 0.0
        self._refused_period_s = _STATUS_PERIOD_S
        self._is_ending = False
        self._is_hurried = False
        self._is_refused = False
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[LeaderWord] = msgspec.msgpack.Decoder(LeaderWord)
        self._is_connected = False
        self._socket = _open_socket(key, context)

    def run(self) -> None:
        """Serve the leader until asked to end.

        Raises:
            EngineUnavailableError: the leader refuses this stage host for good, or is of another
                version.
        """
        try:
            while not (self._is_hurried or (self._is_ending and not self._has_worker)):
                self.turn()
        finally:
            self._end_worker()

    def turn(self) -> None:
        """Say how things stand, wait a moment for the leader's word, look; raises as `run` does."""
        self._say_status()
        if self._socket.poll(round(_CHECK_PERIOD_S * 1000)):
            self._obey(self._decoded(self._socket.recv()))
        self._look()

    def ask_to_end(self, number: int, frame: FrameType | None) -> None:
        """A signal: end when the worker has, whose end is the leader's to decide; again: now."""
        del number, frame
        self._is_hurried = self._is_ending
        self._is_ending = True

    @property
    def _has_worker(self) -> bool:
        return self._generation != "" and self._exit_code is None

    def _connect(self) -> None:
        """Dial the leader as soon as its name is known; a name may be given to it late."""
        host, port = self._leader
        try:
            self._socket.ipv6 = ":" in resolve(host)
        except EngineUnavailableError:
            return  # tried again with the next status, and told with the warning of no answer
        # By name: ZeroMQ resolves it at every attempt, and the next leader may be elsewhere.
        self._socket.connect(tcp_address(host, port))
        self._is_connected = True

    def _decoded(self, message: bytes) -> LeaderWord:
        try:
            return self._decoder.decode(message)
        except msgspec.MsgspecError as error:
            # Its sender has the key, so this is another version of this program.
            raise EngineUnavailableError(
                f"the leader at {self._settings.leader} says what this stage host does not know "
                f"({error}): they differ in version; install the same version on both hosts"
            ) from error

    def _say_status(self) -> None:
        now_s = self._clock()
        if now_s < self._next_status_s:
            return
        if not self._is_connected:
            self._connect()
        self._next_status_s = now_s + self._refused_period_s
        status = MemberStatus(
            stage_index=self._settings.stage_index,
            group_epoch=self._settings.group_epoch,
            instance_id=self._instance_id,
            address=self._settings.address,
            generation=self._generation,
            pid=self._worker.pid,
            exit_code=self._exit_code,
            clock_s=now_s,
            echo_s=self._echo_s,
            held_s=0.0 if self._word_at_s is None else now_s - self._word_at_s,
        )
        try:
            self._socket.send(self._encoder.encode(status), zmq.DONTWAIT)
        except zmq.Again:
            return  # the leader is not there; it is told how things stand when it is

    def _obey(self, word: LeaderWord) -> None:
        is_first = self._word_at_s is None
        self._word_at_s = self._clock()
        self._asked_at_s = self._unanswered_since_s = None
        self._echo_s = word.clock_s
        if not isinstance(word, RefusedWord):
            if is_first or self._is_refused:
                logger.info("joined the leader at %s", self._settings.leader)
            self._is_refused = False
            self._refused_period_s = _STATUS_PERIOD_S
        match word:
            case RunWord():
                self._start(word.settings)
            case KeepWord():
                pass
            case IdleWord():
                self._end_worker()
            case StacksWord():
                self._worker.dump_stacks()
            case RefusedWord(is_final=True):
                raise EngineUnavailableError(f"refused by the leader: {word.reason}")
            case RefusedWord():
                self._wait_refused(word.reason)

    def _start(self, settings: WorkerSettings) -> None:
        if settings.endpoints.generation == self._generation:
            return
        self._end_worker()
        self._worker.start(
            msgspec.structs.replace(
                settings,
                model_folder=str(self._settings.model_folder),
                group_key_file=str(self._settings.group_key_file),
            )
        )
        self._generation = settings.endpoints.generation
        self._exit_code = None
        logger.info("starting stage %d", self._settings.stage_index)
        self._next_status_s = 0.0

    def _wait_refused(self, reason: str) -> None:
        self._end_worker()
        if not self._is_refused:
            logger.warning("refused by the leader, asking again: %s", reason)
        self._is_refused = True
        self._refused_period_s = min(_MAX_REFUSED_PERIOD_S, 2 * self._refused_period_s)
        self._next_status_s = self._clock() + self._refused_period_s

    def _look(self) -> None:
        """Notice the end of the worker, and of the leader."""
        if self._has_worker and (end := self._worker.poll()) is not None:
            self._exit_code = end.code
            logger.warning("stage %d %s", self._settings.stage_index, end.text)
            self._next_status_s = 0.0
        now_s = self._clock()
        if self._word_at_s is not None:
            silent_s = now_s - self._word_at_s
            if silent_s > max(_LEADER_PATIENCE_S, 2 * self._refused_period_s):
                self._note_silence(silent_s, now_s)
        since_s = self._unanswered_since_s
        if since_s is not None and now_s - since_s > _UNANSWERED_S:
            self._warn_unanswered()

    def _note_silence(self, silent_s: float, now_s: float) -> None:
        """Ask once more before the worker is ended: perhaps it was this host that stood still."""
        if self._asked_at_s is None:
            self._asked_at_s = now_s
            self._next_status_s = 0.0
        elif now_s - self._asked_at_s > _LAST_ANSWER_S:
            self._end_worker()
            logger.warning("the leader was silent for %.1f s; waiting for it", silent_s)
            self._word_at_s = self._echo_s = self._asked_at_s = None

    def _warn_unanswered(self) -> None:
        self._unanswered_since_s = None
        logger.warning(
            "no answer from the leader at %s; trying on; check that it runs with this "
            "--leader-address and --leader-port, that this host can reach it there, and that %s "
            "holds the same secret as its --group-key-file",
            *(self._settings.leader, self._settings.group_key_file),
        )

    def _end_worker(self) -> None:
        self._worker.kill()
        self._worker.reap()
        self._generation = ""
        self._exit_code = None


def _open_socket(key: GroupKey, context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    secure_client(socket, key)
    socket.maxmsgsize = MAX_CONTROL_BYTES
    socket.immediate = True  # statuses that nobody hears are not kept
    socket.sndhwm = _QUEUED_STATUSES
    socket.reconnect_ivl = _RECONNECT_MS
    socket.reconnect_ivl_max = _MAX_RECONNECT_MS
    socket.heartbeat_ivl = _CONNECTION_HEARTBEAT_MS
    socket.heartbeat_timeout = _CONNECTION_TIMEOUT_MS
    socket.linger = 0
    return socket


def parse_flags(arguments: Sequence[str]) -> StageHostSettings:
    """Read the flags.

    Raises:
        SystemExit: an unknown flag or a malformed number, named on stderr (argparse).
    """
    parser = argparse.ArgumentParser(
        prog="python -m pipelineserve_engine.stage_host",
        description="Run one stage of a pipeline here, for a leader on another host.",
        allow_abbrev=False,
    )
    required = {
        "leader": (str, "HOST:PORT of the leader's --leader-address and --leader-port"),
        "stage-index": (
            int,
            "which stage to run, from 0; of this host's, if there is a host index",
        ),
        "model-folder": (Path, "folder on this host with config.json and safetensors"),
        "address": (str, "this host's own, as it stands in the leader's --stage-addresses"),
        "group-key-file": (Path, "the group's secret, the same file as the leader's"),
    }
    for name, (kind, text) in required.items():
        parser.add_argument(f"--{name}", type=kind, required=True, help=text)
    optional = {
        "group-epoch": (0, "as the leader's; others are refused"),
        "host-index": (0, "which host this is, from 0, where every one has as many stages"),
        "stages-per-host": (1, "how many stages each host before this one has"),
    }
    for name, (default, text) in optional.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=text)
    values = vars(parser.parse_args(arguments))
    # So that hosts may differ by one number, which a cluster can fill in for each.
    values["stage_index"] += values.pop("host_index") * values.pop("stages_per_host")
    return StageHostSettings(**values)


def main(arguments: Sequence[str]) -> int:
    """Run one stage; 0 after an orderly end, 1 after a failure."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    settings = parse_flags(arguments)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        key = read_group_key(settings.group_key_file)
        with Nursery() as nursery:
            host = StageHost(settings, key, context, LocalProcess(nursery, WORKER_MODULE))
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, host.ask_to_end)
            nursery.warm()  # while the leader is sought
            host.run()
    except PipelineServeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    finally:
        context.destroy(linger=0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
