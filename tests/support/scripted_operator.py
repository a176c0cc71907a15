"""An operator to attend to: sends the objectives it is given, keeps what it hears."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import grpc

from certificates import HOST, KeyPair
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve.wire.v1.operator_pb2_grpc import (
    OperatorLinkServicer,
    add_OperatorLinkServicer_to_server,
)


class ScriptedOperator(OperatorLinkServicer):
    """Serves over TLS on the loopback address.

    Attributes:
        token: what a caller must show.
        heard: every status, in order.
        num_calls: calls let in.
        num_turned_away: calls without the token.
    """

    def __init__(self, pair: KeyPair, token: str, port: int = 0) -> None:
        self._pair = pair
        self._server: grpc.Server | None = None
        self._ending = threading.Event()
        self._to_send: queue.Queue[pb.Objectives] = queue.Queue()
        self.port = port
        self.token = token
        self.heard: list[pb.ControllerStatus] = []
        self.num_calls = 0
        self.num_turned_away = 0

    def __enter__(self) -> Self:
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8))
        add_OperatorLinkServicer_to_server(self, self._server)
        credentials = grpc.ssl_server_credentials(
            [(self._pair.key.read_bytes(), self._pair.certificate.read_bytes())]
        )
        self.port = self._server.add_secure_port(f"{HOST}:{self.port}", credentials)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        if self._server is not None:
            self._server.stop(grace=0).wait()

    def send(self, objectives: pb.Objectives) -> None:
        """Send these to whoever attends."""
        self._to_send.put(objectives)

    def Attend(  # noqa: N802 # the contract's name
        self, request_iterator: Iterator[pb.ControllerStatus], context: grpc.ServicerContext
    ) -> Iterator[pb.Objectives]:
        """Let in who shows the token, hear all that is said, send all that is to be sent."""
        shown = dict(context.invocation_metadata()).get("authorization")
        if shown != f"Bearer {self.token}":
            self.num_turned_away += 1
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no valid token")
        self.num_calls += 1
        threading.Thread(target=self._hear, args=(request_iterator,), daemon=True).start()
        while not self._ending.is_set() and context.is_active():
            try:
                yield self._to_send.get(timeout=0.05)
            except queue.Empty:
                continue  # looks again whether the call has ended

    def _hear(self, statuses: Iterator[pb.ControllerStatus]) -> None:
        try:
            for status in statuses:
                self.heard.append(status)
        except grpc.RpcError:
            pass  # the caller went away, which tests do on purpose
