"""Ctrl-C and SIGTERM as requests to end: noted at once, heeded where nothing is half done.

Left to itself, Python raises `KeyboardInterrupt` wherever the program happens to be. In a callback
of a weak reference, which every import has, it is printed and lost; between the start of a process
and the note of it, the process is lost.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import NoReturn, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class EndRequests:
    """Takes both signals within the block; only in the main thread."""

    def __init__(self) -> None:
        self._noted: list[int] = []
        self._raises = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the signals to whom they belonged."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def num_noted(self) -> int:
        """Requests so far."""
        return len(self._noted)

    def check(self) -> None:
        """Heed the first request, if there is one; for loops that wait.

        Raises:
            KeyboardInterrupt: Ctrl-C.
            SystemExit: SIGTERM.
        """
        if self._noted:
            _raise(self._noted[0])

    @contextmanager
    def heeded_anywhere(self) -> Iterator[None]:
        """For code that waits and does not ask: a request is raised in the midst of the block.

        One that is lost there is raised when the block is over.
        """
        self.check()
        self._raises = True
        try:
            yield
        finally:
            self._raises = False
        self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._noted.append(number)
        if self._raises:
            _raise(number)


def _raise(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
