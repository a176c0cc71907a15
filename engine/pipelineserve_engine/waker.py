"""Ends a wait from another thread: a pipe that a poller watches."""

import os
import select


class Waker:
    """Any thread may `wake`; the one that polls `descriptor` calls `drain` when it is readable."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write, False)

    def wake(self) -> None:
        """Make the descriptor readable."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # the pipe is full of wakes that were not read yet: one is enough

    def wait(self, timeout_s: float) -> None:
        """Wait for a wake, up to `timeout_s`."""
        select.select([self.descriptor], [], [], timeout_s)
        self.drain()

    def drain(self) -> None:
        """Take back all wakes so far."""
        try:
            while os.read(self.descriptor, 4096):
                pass
        except BlockingIOError:
            return  # empty: all wakes are read
