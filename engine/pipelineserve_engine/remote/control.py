"""The leader's control socket, in a thread of its own: it answers whatever the engine loop does."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec
import zmq

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine.plan import OtherHosts
from pipelineserve_engine.remote.addresses import bind_tcp, resolve
from pipelineserve_engine.remote.gate import KeyGate
from pipelineserve_engine.remote.keys import GroupKey, secure_server
from pipelineserve_engine.remote.messages import (
    MAX_CONTROL_BYTES,
    LeaderWord,
    MemberStatus,
    RefusedWord,
    StacksWord,
)
from pipelineserve_engine.remote.roster import Roster, StageState
from pipelineserve_engine.waker import Waker
from pipelineserve_engine.worker_settings import WorkerSettings

_SILENCE_S = 5.0
_LINGER_MS = 1000

logger = logging.getLogger(__name__)


class Control:
    """Orders to stage hosts, and what is known of their workers.

    Only its thread touches socket and roster; callers leave it requests and read states.

    Args:
        hosts: where it listens, and who may join.
        key: of the group.

    Raises:
        EngineUnavailableError: it cannot listen there.
    """

    def __init__(self, hosts: OtherHosts, key: GroupKey) -> None:
        self.host = resolve(hosts.leader_address)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.gate = KeyGate(self.context, key)
        self._socket = self.context.socket(zmq.ROUTER)
        self._socket.maxmsgsize = MAX_CONTROL_BYTES
        secure_server(self._socket, key)
        try:
            bind_tcp(self._socket, self.host, hosts.leader_port)
        except BaseException:
            self._close_context()
            raise
        text = "waiting for %d stage hosts at %s:%d"
        logger.info(text, len(hosts.stage_addresses), self.host, hosts.leader_port)
        self._roster = Roster(hosts.stage_addresses, hosts.group_epoch, _SILENCE_S)
        self._states = [StageState() for _ in hosts.stage_addresses]
        self._requests: deque[Callable[[], None]] = deque()
        self._waker = Waker()
        self._news = threading.Condition()
        self._is_closing = False
        self._fault: str | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(MemberStatus)
        self._thread = threading.Thread(target=self._run, name="stage-hosts", daemon=True)
        self._thread.start()

    def order(self, stage_index: int, settings: WorkerSettings | None) -> None:
        """Let the stage's host run this worker and no other; None for none."""
        self._request(lambda: self._order(stage_index, settings))

    def dump_stacks(self, stage_index: int) -> None:
        """Let the stage's worker write its stacks to its host's stderr."""
        self._request(lambda: self._dump_stacks(stage_index))

    def state(self, stage_index: int) -> StageState:
        """What is known of the worker that was ordered last.

        Raises:
            EngineUnavailableError: nobody listens to the stage hosts any more, by a fault here.
        """
        if self._fault is not None:
            raise EngineUnavailableError(self._fault)
        return self._states[stage_index]

    def wait(self, is_reached: Callable[[], bool], timeout_s: float) -> None:
        """Wait until a state is as wanted, up to `timeout_s`; raises as `state` does."""
        with self._news:
            self._news.wait_for(is_reached, timeout_s)

    def close(self) -> None:
        """Let every stage host run nothing, and listen no more."""
        self._is_closing = True
        self._waker.wake()
        self._thread.join()
        self._close_context()

    def _close_context(self) -> None:
        self._socket.close(linger=_LINGER_MS)
        self.gate.close()
        self.context.destroy(linger=_LINGER_MS)

    def _request(self, request: Callable[[], None]) -> None:
        self._requests.append(request)
        self._waker.wake()

    # In the thread

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            # Its callers would read the last states for ever, as if all were well.
            logger.exception("the thread that serves the stage hosts has failed")
            self._fault = f"stage hosts are served no longer: {type(error).__name__}: {error}"
            with self._news:
                self._news.notify_all()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._waker.descriptor, zmq.POLLIN)
        while not self._is_closing:
            ready = dict(poller.poll())
            if self._waker.descriptor in ready:
                self._waker.drain()
            self._work_off_requests()
            if self._socket in ready:
                self._take_status()
            with self._news:
                self._states = [self._roster.state(index) for index in range(len(self._states))]
                self._news.notify_all()
        self._work_off_requests()

    def _work_off_requests(self) -> None:
        while self._requests:
            self._requests.popleft()()

    def _take_status(self) -> None:
        connection, *rest = self._socket.recv_multipart()
        try:
            status = self._decoder.decode(b"".join(rest))
        except msgspec.MsgspecError as error:
            # Its sender has the key, so this is another version of this program.
            logger.warning("a stage host sent something that is no status: %s", error)
            return
        word = self._roster.hear(connection, status, time.monotonic())
        if isinstance(word, RefusedWord):
            logger.warning("refused a stage host at %s: %s", status.address, word.reason)
        self._send(connection, word)

    def _order(self, stage_index: int, settings: WorkerSettings | None) -> None:
        self._roster.order(stage_index, settings)
        connection = self._roster.connection(stage_index)
        word = self._roster.word(stage_index, time.monotonic())
        if connection is not None and word is not None:
            self._send(connection, word)

    def _dump_stacks(self, stage_index: int) -> None:
        connection = self._roster.connection(stage_index)
        if connection is not None:
            self._send(connection, StacksWord(time.monotonic()))

    def _send(self, connection: bytes, word: LeaderWord) -> None:
        # To one that is gone, or takes nothing, it is dropped: its next status is answered anew.
        self._socket.send_multipart([connection, self._encoder.encode(word)], zmq.DONTWAIT)
