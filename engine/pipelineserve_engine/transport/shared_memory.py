"""Hidden states through shared memory, between stages of one host.

Each link has a ring of places in memory without a name, and a pair of connected sockets. The sender
copies into the next place and then tells the number of tokens; the receiver reads in place and then
gives the place back. So nothing is read that was not written whole, the end of either process ends
the other's wait, and the kernel frees the memory with the last of them, however they end.
"""

import mmap
import os
import socket
import struct
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import torch

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine.transport.link_settings import LinkEnd

_TOLD = struct.Struct("<I")
_GIVEN_BACK = b"\0"


def make_link(ring: "RingShape") -> tuple[LinkEnd, LinkEnd]:
    """Memory and sockets of one link; what the kernel has of them is freed with their last user.

    Returns:
        The sender's end and the receiver's.

    Raises:
        OSError: there is no memory for it, or no descriptor; then nothing of it is left.
    """
    with ExitStack() as on_failure:
        memory = os.memfd_create("pserve-hidden-states")
        on_failure.callback(os.close, memory)
        os.ftruncate(memory, ring.num_bytes)
        memory_again = os.dup(memory)
        on_failure.callback(os.close, memory_again)
        sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        on_failure.pop_all()
    return LinkEnd(memory, sender.detach()), LinkEnd(memory_again, receiver.detach())


@dataclass(frozen=True, slots=True)
class RingShape:
    """Size of a link's ring.

    Attributes:
        num_places: micro-batches that it holds at once.
        place_tokens: of the largest micro-batch.
        hidden_size: of the model.
        dtype: of the hidden states.
    """

    num_places: int
    place_tokens: int
    hidden_size: int
    dtype: torch.dtype

    @property
    def place_bytes(self) -> int:
        """Of one micro-batch at most."""
        return self.place_tokens * self.hidden_size * self.dtype.itemsize

    @property
    def num_bytes(self) -> int:
        """Of the ring."""
        return self.num_places * self.place_bytes

    def places(self, memory: int) -> list[torch.Tensor]:
        """Map the ring; each place is [place_tokens, hidden]."""
        mapped = mmap.mmap(memory, self.num_bytes)
        ring = torch.frombuffer(mapped, dtype=self.dtype)
        return list(ring.view(self.num_places, self.place_tokens, self.hidden_size))


class RingSender:
    """The end that writes.

    Args:
        end: taken over; its descriptors are closed.
        ring: the same at both ends.
    """

    def __init__(self, end: LinkEnd, ring: RingShape) -> None:
        self._channel = socket.socket(fileno=end.channel)
        self._places = ring.places(end.memory)
        os.close(end.memory)
        self._place_tokens = ring.place_tokens
        self._num_free = ring.num_places
        self._next = 0

    @property
    def num_free(self) -> int:
        """Places that can be written now."""
        self._take_back(socket.MSG_DONTWAIT)
        return self._num_free

    def send(self, hidden: torch.Tensor) -> None:
        """Copy [tokens, hidden] into the next place; waits only if the receiver holds them all.

        Raises:
            EngineUnavailableError: the receiver is gone.
        """
        num_tokens = len(hidden)
        if num_tokens > self._place_tokens:
            raise EngineUnavailableError(
                f"a micro-batch of {num_tokens} tokens does not fit into the link's places of "
                f"{self._place_tokens}; raise max_chunk_tokens"
            )
        if self.num_free == 0:
            self._take_back(0)
        self._places[self._next][:num_tokens].copy_(hidden)
        self._next = (self._next + 1) % len(self._places)
        self._num_free -= 1
        try:
            self._channel.send(_TOLD.pack(num_tokens))
        except OSError as error:
            raise EngineUnavailableError(f"the stage behind is gone: {error.strerror}") from error

    def close(self) -> None:
        """Send no more; what was sent can still be received. Waits for nothing."""
        # A close with places unread that were given back would reset the receiver's end, and what
        # it has still to read with it. After the shutdown no more can come, so the end is near.
        with suppress(OSError):  # the receiver is gone, or this was closed before
            self._channel.shutdown(socket.SHUT_RDWR)
            while self._channel.recv(1):
                pass
        self._channel.close()

    def _take_back(self, flags: int) -> None:
        """Count the places that were given back; without flags, wait for one first."""
        try:
            while given_back := self._channel.recv(1, flags):
                self._num_free += len(given_back)
                flags = socket.MSG_DONTWAIT
        except BlockingIOError:
            return  # all are counted
        except OSError as error:
            raise EngineUnavailableError(f"the stage behind is gone: {error.strerror}") from error
        raise EngineUnavailableError("the stage behind is gone: it closed its link")


class RingReceiver:
    """The end that reads.

    Args:
        end: taken over; its descriptors are closed.
        ring: the same at both ends.
    """

    def __init__(self, end: LinkEnd, ring: RingShape) -> None:
        self._channel = socket.socket(fileno=end.channel)
        self._places = ring.places(end.memory)
        os.close(end.memory)
        self._next = 0

    def post(self, num_tokens: int) -> "RingReception":
        """The next receive; the sender needs nothing of it."""
        return RingReception(self, num_tokens)

    def read(self, num_tokens: int) -> torch.Tensor:
        """Wait for the next place to be written; [num_tokens, hidden] where it lies.

        Raises:
            EngineUnavailableError: the sender is gone, or sent another micro-batch.
        """
        try:
            told = self._channel.recv(_TOLD.size)
        except OSError as error:
            raise EngineUnavailableError(f"the stage before is gone: {error.strerror}") from error
        if not told:
            raise EngineUnavailableError("the stage before is gone: it closed its link")
        (got,) = _TOLD.unpack(told)
        if got != num_tokens:
            raise EngineUnavailableError(
                f"got a micro-batch of {got} tokens, expected {num_tokens}: the stages disagree"
            )
        place = self._places[self._next][:num_tokens]
        self._next = (self._next + 1) % len(self._places)
        return place

    def give_back(self) -> None:
        """The place that was read first may be written again."""
        try:
            self._channel.send(_GIVEN_BACK)
        except (BrokenPipeError, ConnectionResetError):
            return  # nobody will write it; the next read says so, if there is one

    def close(self) -> None:
        """Receive no more."""
        self._channel.close()


@dataclass(frozen=True, slots=True)
class RingReception:
    """One place of the ring, from its writing to its release."""

    receiver: RingReceiver
    num_tokens: int

    def wait(self) -> torch.Tensor:
        """Wait for [tokens, hidden]."""
        return self.receiver.read(self.num_tokens)

    def release(self) -> None:
        """Let the sender write the place again."""
        self.receiver.give_back()


class SharedMemoryTransport:
    """A stage's links in both directions; the ends of the pipeline have one each."""

    def __init__(self, before: LinkEnd | None, behind: LinkEnd | None, ring: RingShape) -> None:
        self._receiver = None if before is None else RingReceiver(before, ring)
        self._sender = None if behind is None else RingSender(behind, ring)

    def post_receive(self, num_tokens: int) -> RingReception:
        """Start to receive [num_tokens, hidden] of the stage before."""
        assert self._receiver is not None, "the first stage receives nothing"  # noqa: S101
        return self._receiver.post(num_tokens)

    def send(self, hidden: torch.Tensor) -> None:
        """Hand [tokens, hidden] to the stage behind."""
        assert self._sender is not None, "the last stage sends nothing"  # noqa: S101
        self._sender.send(hidden)

    def close(self) -> None:
        """Give up the links."""
        for end in (self._receiver, self._sender):
            if end is not None:
                end.close()
