"""Questions of the control server's threads, answered in the thread that schedules."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from pipelineserve.errors import EngineUnavailableError

_ReplyT = TypeVar("_ReplyT")


class Questions:
    """What was asked and is not answered yet."""

    def __init__(self) -> None:
        # Appending and popping are atomic; nothing else is shared.
        self._pending: deque[Callable[[float | None], None]] = deque()
        self._is_closed = False

    def ask(self, question: Callable[[float], _ReplyT]) -> Future[_ReplyT]:
        """Have a question answered between two micro-batches; from any thread.

        Args:
            question: called with the time; what it raises, the future does.

        Raises:
            EngineUnavailableError: nobody answers any more; the future raises it if that comes
                later.
        """
        reply: Future[_ReplyT] = Future()

        def answer(now_s: float | None) -> None:
            if not reply.set_running_or_notify_cancel():
                return  # nobody waits for it any more
            if now_s is None:
                reply.set_exception(_ended())
                return
            try:
                reply.set_result(question(now_s))
            except Exception as error:  # noqa: BLE001 - it is the asker's to handle
                reply.set_exception(error)

        self._pending.append(answer)
        # Looked at after appending: whoever closes from here on refuses what was appended.
        if self._is_closed:
            self._refuse()
            raise _ended()
        return reply

    def answer(self, now_s: float) -> None:
        """Answer all; in the thread that schedules."""
        while self._pending:
            self._pending.popleft()(now_s)

    def close(self) -> None:
        """Refuse all that is asked and will be."""
        self._is_closed = True
        self._refuse()

    def _refuse(self) -> None:
        while True:
            try:
                refuse = self._pending.popleft()
            except IndexError:
                return
            refuse(None)


def _ended() -> EngineUnavailableError:
    return EngineUnavailableError("the engine is stopping")
