"""The control server: its socket, its gRPC server, and the state that health checks see."""

import errno
import fcntl
import logging
import os
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import OVERALL_HEALTH, HealthServicer

from pipelineserve.errors import EngineUnavailableError
from pipelineserve.wire import keepalive
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve.wire.v1 import scheduler_pb2_grpc
from pipelineserve_engine.control.address import (
    TcpAddress,
    TlsFiles,
    UnixAddress,
    parse_address,
)
from pipelineserve_engine.control.certificates import CertificateFiles
from pipelineserve_engine.control.desk import MAX_WATCHERS
from pipelineserve_engine.control.service import (
    ControlledEngine,
    InactiveEngine,
    SchedulerControl,
)

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["SchedulerControl"].full_name
# The longest lists that a policy may have take about 15 KiB.
MAX_REQUEST_BYTES = 1 << 16

# Each watcher keeps one; the rest is for Apply and health checks.
_NUM_THREADS = MAX_WATCHERS + 4
_MAX_CALLS = 64
_STOP_GRACE_S = 1.0
_PROBE_TIMEOUT_S = 2.0
_PRIVATE_MODE = 0o600

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    # A second server on the same port is an error and not a lottery.
    ("grpc.so_reuseport", 0),
    # A watcher whose machine has gone ends its session within a minute.
    *keepalive.ENGINE.options(),
    *keepalive.SIDECAR.allowed(),
)

logger = logging.getLogger(__name__)


class ControlServer:
    """Listens from the start and answers UNAVAILABLE until it is given an engine."""

    def __init__(self, address: UnixAddress | TcpAddress, files: TlsFiles) -> None:
        self._service = SchedulerControl()
        self._health = HealthServicer()
        self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="control")
        self._server = grpc.server(
            self._threads, options=_OPTIONS, maximum_concurrent_rpcs=_MAX_CALLS
        )
        scheduler_pb2_grpc.add_SchedulerControlServicer_to_server(self._service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        match address:
            case UnixAddress(path):
                _bind_socket_file(self._server, path)
                self.address = str(address)
            case TcpAddress(host):
                port = _bind_port(self._server, address, files)
                self.address = str(TcpAddress(host, port))
        self._server.start()

    def open(self, engine: ControlledEngine | InactiveEngine) -> None:
        """Serve this engine."""
        self._service.open(engine)
        self._set_health(health_pb2.HealthCheckResponse.SERVING)
        logger.info("controllers can call %s", self.address)

    def turn_away(self) -> None:
        """End all watches, and tell whoever calls that the engine is stopping."""
        self._health.enter_graceful_shutdown()
        self._service.close()

    def close(self) -> None:
        """End all calls, then the server; its socket file goes with it."""
        self.turn_away()
        self._server.stop(_STOP_GRACE_S).wait()
        self._threads.shutdown()

    def _set_health(self, status: "health_pb2.HealthCheckResponse.ServingStatus") -> None:
        for service in (OVERALL_HEALTH, SERVICE_NAME):
            self._health.set(service, status)


@contextmanager
def control_server(address: str, files: TlsFiles) -> Iterator[ControlServer | None]:
    """Listen for controllers for the length of the block; None without an address.

    Raises:
        EngineUnavailableError: the address is taken or cannot be used.
        InvalidInputError: the TLS files cannot be used.
    """
    if not address:
        yield None
        return
    server = ControlServer(parse_address(address), files)
    try:
        yield server
    finally:
        server.close()


def _bind_port(server: grpc.Server, address: TcpAddress, files: TlsFiles) -> int:
    credentials = CertificateFiles(files).credentials()
    with _explained(str(address)):
        return server.add_secure_port(str(address), credentials)


def _bind_socket_file(server: grpc.Server, path: Path) -> None:
    """Listen on a socket file that only this user can open.

    gRPC removes whatever socket is there before it binds, so that a live one must be found first;
    a lock on the folder keeps another engine from doing the same at the same time.
    """
    with _explained(f"unix:{path}"), _locked(path.parent):
        _refuse_unless_free(path)
        mask = os.umask(0o777 & ~_PRIVATE_MODE)
        try:
            server.add_insecure_port(f"unix:{path}")
        finally:
            os.umask(mask)


def _refuse_unless_free(path: Path) -> None:
    """Refuse what is not a socket, and a socket that somebody listens on."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise EngineUnavailableError(
            f"cannot serve controllers on unix:{path}: a file that is no socket is there; "
            "name another path, or remove it"
        )
    if _is_served(path):
        raise EngineUnavailableError(
            f"cannot serve controllers on unix:{path}: another process serves there; "
            "end it, or name another path"
        )


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except (BlockingIOError, TimeoutError):
            return True  # it has more connections waiting than it takes
        return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """What goes wrong while binding, as an error that names the address."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        reason = os.strerror(error.errno or errno.EIO) if isinstance(error, OSError) else f"{error}"
        raise EngineUnavailableError(
            f"cannot serve controllers on {address}: {reason}; "
            "choose another address, or end the process that uses this one"
        ) from error
