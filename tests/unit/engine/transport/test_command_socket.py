"""A stage's commands over ZeroMQ: in order, and no loss in silence."""

from collections.abc import Iterator

import msgspec
import pytest
import zmq

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine.server_link import CommandSocket
from pipelineserve_engine.stage_messages import StepCommand, StopCommand
from zmq_sockets import KeptSockets


@pytest.fixture
def context() -> Iterator[KeptSockets]:
    with KeptSockets.opened() as sockets:
        yield sockets


def bound(context: KeptSockets, kind: int) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """The server's socket, and the stage's that is connected to it."""
    server = context.socket(kind)
    server.bind("tcp://127.0.0.1:*")
    stage = context.socket(zmq.PULL if kind == zmq.PUSH else zmq.PUSH)
    stage.connect(server.get_string(zmq.LAST_ENDPOINT))
    return server, stage


def test_commands_come_in_order_and_only_when_they_are_there(
    context: KeptSockets,
) -> None:
    server, stage = bound(context, zmq.PUSH)
    source = CommandSocket(stage, bound(context, zmq.PULL)[1])
    assert source.next_if_there() is None
    commands = [StepCommand(0, 0, ()), StepCommand(1, 1, ()), StopCommand()]
    for command in commands:
        server.send(msgspec.msgpack.encode(command))
    assert [source.next() for _ in commands] == commands
    assert source.next_if_there() is None


@pytest.mark.parametrize("lost", [0, 1], ids=["commands", "reports"])
def test_a_lost_connection_ends_the_wait_though_zeromq_would_connect_again(
    context: KeptSockets, lost: int
) -> None:
    pairs = [bound(context, zmq.PUSH), bound(context, zmq.PULL)]
    source = CommandSocket(pairs[0][1], pairs[1][1])
    pairs[0][0].send(msgspec.msgpack.encode(StepCommand(0, 0, ())))
    pairs[1][1].send(b"both are connected")
    source.next()
    pairs[1][0].recv()
    pairs[lost][0].close(linger=0)
    with pytest.raises(EngineUnavailableError, match="the connection to the server is lost"):
        source.next()
