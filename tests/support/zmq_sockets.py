"""ZeroMQ sockets that live until the end of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import zmq


class KeptSockets:
    """A context that keeps its sockets, which would warn if they were dropped while open."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._kept: list[zmq.Socket[bytes]] = []

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Self]:
        """Close all at the end."""
        sockets = cls()
        try:
            yield sockets
        finally:
            sockets._context.destroy(linger=0)

    def socket(self, kind: int) -> zmq.Socket[bytes]:
        """A new one."""
        made = self._context.socket(kind)
        self._kept.append(made)
        return made
