"""What a nursery and its owner say to each other: typed msgpack, with descriptors beside it."""

import array
import socket
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from pipelineserve_engine.worker_settings import WorkerSettings

# Far above the longest order, whose paths are bounded by the system.
_MAX_BYTES = 1 << 17
# More than what the system counts for the orders of as many stages as a pipeline may have.
_ROOM_BYTES = 1 << 19
# A stage has two links of two descriptors each.
_MAX_DESCRIPTORS = 8

_ENCODER = msgspec.msgpack.Encoder()

SaidT = TypeVar("SaidT")


class StartOrder(msgspec.Struct, frozen=True, array_like=True):
    """Fork a stage; the descriptors of its links' ends go along, in their order.

    Attributes:
        ticket: what the answers call it; process ids come again.
        worker_module: whose `main` the stage runs.
        settings: what `main` is called with, once the links' descriptors are the nursery's own.
    """

    ticket: int
    worker_module: str
    settings: WorkerSettings


class StartedAnswer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The stage's process runs; a descriptor of the process goes along."""

    ticket: int
    pid: int


class RefusedAnswer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """There is no process for the stage, and why."""

    ticket: int
    reason: str


class EndedAnswer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The stage's process has ended: exit status, negative for a signal's number."""

    ticket: int
    code: int


NurseryAnswer = StartedAnswer | RefusedAnswer | EndedAnswer


def open_channel() -> tuple[socket.socket, socket.socket]:
    """Sockets that keep messages apart: the owner's, which never waits, and the nursery's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    # Orders wait here while the nursery imports; by default there is no room for 64 stages' ones.
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM_BYTES)
    return ours, theirs


def say(channel: socket.socket, message: msgspec.Struct, descriptors: Sequence[int] = ()) -> None:
    """Send one message; the other side gets copies of the descriptors.

    Raises:
        OSError: the other side is gone, or takes nothing now and the channel may not wait.
    """
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    channel.sendmsg([_ENCODER.encode(message)], [rights])


def hear(
    channel: socket.socket, decoder: "msgspec.msgpack.Decoder[SaidT]"
) -> tuple[SaidT, tuple[int, ...]] | None:
    """The next message with its descriptors, which are the caller's; None if no more can come.

    Raises:
        BlockingIOError: there is none yet, and the channel may not wait.
    """
    descriptors = array.array("i")
    room = socket.CMSG_LEN(_MAX_DESCRIPTORS * descriptors.itemsize)
    try:
        message, ancillary, _, _ = channel.recvmsg(_MAX_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:  # it went with something unread
        return None
    for _, _, data in ancillary:  # nothing else than descriptors was asked for
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return (decoder.decode(message), tuple(descriptors)) if message else None
