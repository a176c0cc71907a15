"""PID 1 of the sidecar's container: keeps the controller running and never ends because it did.

A container that exits makes its whole pod unready, and takes an engine that serves well out of its
Service. So a controller that dies is started again after a pause, whatever it died of. Orphans are
reaped; SIGTERM and SIGINT are handed on, and end this process once the controller has ended.
"""

import argparse
import logging
import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from pipelineserve_controller.backoff import Backoff

logger = logging.getLogger("pipelineserve_controller.supervisor")

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
# A child that lived this long has started well; its next pause is the first one again.
_SETTLED_S = 60.0
_WAIT_S = 1.0
_ENDING = (signal.SIGTERM, signal.SIGINT)


class Supervisor:
    """Runs one child for ever.

    Args:
        command: of the child; its first item is a path.
        chance: spreads restarts.
        monotonic_s: the clock.
        parent_pid: the child is ended, as by SIGTERM, once this is no longer the parent process;
            0 for never.
    """

    def __init__(
        self,
        command: Sequence[str],
        chance: random.Random,
        monotonic_s: Callable[[], float],
        parent_pid: int = 0,
    ) -> None:
        self._command = tuple(command)
        self._parent_pid = parent_pid
        self._chance = chance
        self._monotonic_s = monotonic_s
        self._child: int | None = None
        self._started_at_s = 0.0
        self._start_due_s = 0.0
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._is_ending = False

    def run(self) -> int:
        """Return 0 after SIGTERM, SIGINT or the parent's end, once the child has ended."""
        with _signals(self._hand_on) as woken:
            while not (self._is_ending and self._child is None):
                if self._child is None and self._monotonic_s() >= self._start_due_s:
                    self._start()
                if select.select([woken], [], [], self._wait_s())[0]:
                    woken.recv(4096)
                self._reap()
                if self._parent_pid not in (0, os.getppid()) and not self._is_ending:
                    self._hand_on(signal.SIGTERM)
        return 0

    def _wait_s(self) -> float:
        """Until the next start is due, or for a while; a signal ends the wait."""
        if self._child is not None:
            return _WAIT_S
        return min(_WAIT_S, max(0.0, self._start_due_s - self._monotonic_s()))

    def _start(self) -> None:
        self._started_at_s = self._monotonic_s()
        try:
            self._child = os.posix_spawn(
                self._command[0], self._command, os.environ, setsigdef=[*_ENDING, signal.SIGCHLD]
            )
        except OSError as error:
            self._plan_restart(f"cannot be started: {error}")
            return
        if self._is_ending and self._child is not None:
            # The signal came while the child was being started and had no child to go to.
            os.kill(self._child, signal.SIGTERM)

    def _reap(self) -> None:
        """Collect every process that has ended; as PID 1 others' orphans are among them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._child:
                self._child = None
                self._plan_restart(f"ended with {os.waitstatus_to_exitcode(status)}")

    def _plan_restart(self, problem: str) -> None:
        if self._is_ending:
            return
        now_s = self._monotonic_s()
        if now_s - self._started_at_s >= _SETTLED_S:
            self._backoff = self._backoff.succeeded()
        pause_s = self._backoff.pause_s(self._chance)
        self._backoff = self._backoff.failed()
        self._start_due_s = now_s + pause_s
        logger.warning("controller %s; started again in %.1f s", problem, pause_s)

    def _hand_on(self, number: int) -> None:
        self._is_ending = True
        if self._child is not None:
            # It may have ended a moment ago; an error out of a signal would end this process.
            with suppress(ProcessLookupError):
                os.kill(self._child, number)


class _signals:  # noqa: N801 # a context manager, used like a function
    """Hands on ending signals; the socket that it gives turns readable at any signal."""

    def __init__(self, hand_on: Callable[[int], None]) -> None:
        self._hand_on = hand_on

    def __enter__(self) -> socket.socket:
        self._woken, self._waking = socket.socketpair()
        self._waking.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        for number in _ENDING:
            signal.signal(number, lambda got, _: self._hand_on(got))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        return self._woken

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._old_fd)
        for number in (*_ENDING, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._woken.close()
        self._waking.close()


def main(arguments: Sequence[str]) -> int:
    """Supervise the controller, which gets these arguments; `--parent-pid` is for this process."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--parent-pid", type=int, default=0)
    own, others = parser.parse_known_args(arguments)
    # Killed without a chance to hand anything on, this process takes the controller with it.
    command = [sys.executable, "-m", "pipelineserve_controller", *others]
    command.append(f"--parent-pid={os.getpid()}")
    chance = random.Random()  # noqa: S311 # it spreads restarts, it guards nothing
    return Supervisor(command, chance, time.monotonic, own.parent_pid).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
