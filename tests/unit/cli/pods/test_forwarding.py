"""A port that leads to a pod, as its client sees it."""

import socket
import threading
from collections.abc import Iterator

import pytest

from pipelineserve_cli.pods.forwarding import PortForward


@pytest.fixture
def forward() -> Iterator[PortForward]:
    with PortForward(0) as opened:
        yield opened


@pytest.fixture
def pod() -> Iterator[socket.socket]:
    with socket.create_server(("127.64.0.9", 0)) as listener:
        listener.settimeout(60.0)
        yield listener


def connect(forward: PortForward) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(forward.url.rpartition(":")[2])), 60.0)


def all_of(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def test_bytes_go_both_ways_until_the_pod_ends_the_connection(
    forward: PortForward, pod: socket.socket
) -> None:
    forward.lead_to(*pod.getsockname())
    sent = bytes(range(256)) * 20_000
    with connect(forward) as client:
        server, _ = pod.accept()
        with server:
            threading.Thread(target=client.sendall, args=(sent,)).start()
            got = b""
            while len(got) < len(sent):
                got += server.recv(1 << 16)
            assert got == sent
            server.sendall(b"answer")
        assert all_of(client) == b"answer"


def test_a_client_that_leaves_is_noticed_by_the_pod(
    forward: PortForward, pod: socket.socket
) -> None:
    forward.lead_to(*pod.getsockname())
    client = connect(forward)
    server, _ = pod.accept()
    server.settimeout(60.0)
    client.close()
    assert server.recv(1) == b""
    server.close()


def test_a_connection_ends_at_once_while_nobody_serves(
    forward: PortForward, pod: socket.socket
) -> None:
    with connect(forward) as before:
        assert all_of(before) == b""
    host, port = pod.getsockname()
    pod.close()
    forward.lead_to(host, port)
    with connect(forward) as client:
        assert all_of(client) == b""


def test_a_taken_port_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        PortForward(taken.getsockname()[1])


def test_the_end_closes_the_port_and_what_is_open(pod: socket.socket) -> None:
    with PortForward(0) as forward:
        forward.lead_to(*pod.getsockname())
        client = connect(forward)
        server, _ = pod.accept()
    with client, server:
        assert all_of(client) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(forward)
