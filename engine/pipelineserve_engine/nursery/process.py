"""A nursery and the stages that it forks, as their owner sees them."""

import os
import select
import signal
import socket
import time
from contextlib import suppress

import msgspec

from pipelineserve_engine.nursery.messages import (
    EndedAnswer,
    NurseryAnswer,
    RefusedAnswer,
    StartedAnswer,
    StartOrder,
    hear,
    say,
)
from pipelineserve_engine.stage_process import ProcessEnd, end_of
from pipelineserve_engine.worker_settings import WorkerSettings

# Longer than importing everything takes on a slow disk; once it has, a nursery forks at once.
_START_PATIENCE_S = 60.0
# The nursery hears of an end when its owner does, and says so at once. Less than the time for which
# a group looks for the cause of a failure, so that it is found.
_LAST_WORD_S = 0.5


class ForkedStage:
    """One stage's process, as far as its nursery has told of it.

    Attributes:
        pid: once the nursery has told it.
    """

    def __init__(self, nursery: "NurseryProcess") -> None:
        self.pid: int | None = None
        self._nursery = nursery
        self._ordered_at_s = time.monotonic()
        self._descriptor: int | None = None
        self._end: ProcessEnd | None = None
        self._over_since_s: float | None = None
        self._is_killed = False

    def poll(self) -> ProcessEnd | None:
        """How it ended; None before that."""
        nursery_end = self._nursery.poll()
        if self._end is None:
            self._end = self._end_untold(nursery_end)
        return self._end

    def kill(self) -> None:
        """End it at once, or as soon as it runs; fit for a signal handler."""
        self._is_killed = True
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs; never to another process that has got its pid."""
        if self._descriptor is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def wait(self, timeout_s: float | None) -> None:
        """Wait for its end, up to `timeout_s`, for ever without; not for one that may never run."""
        if self._descriptor is not None:
            _is_readable(self._descriptor, timeout_s)

    def reap(self) -> None:
        """Wait for the end of what was killed, and forget it.

        Where the nursery has not even said that it runs, that is the nursery's end: it may be
        importing for seconds, and what it forks meanwhile ends with it.
        """
        self._nursery.poll()
        if self._descriptor is None:
            if self._end is None:
                self._nursery.end()
            return
        self.wait(None)
        # A nursery that does not tell of it stands still, and would not start the next one either.
        deadline_s = time.monotonic() + _LAST_WORD_S
        while self._end is None and self._nursery.poll() is None:
            if (left_s := deadline_s - time.monotonic()) <= 0.0:
                self._nursery.end()
            else:
                self._nursery.wait(left_s)
        os.close(self._descriptor)
        self._descriptor = None

    def note(self, answer: NurseryAnswer, descriptors: tuple[int, ...]) -> None:
        """The nursery has told of it."""
        match answer:
            case StartedAnswer(_, pid):
                self.pid = pid
                (self._descriptor,) = descriptors
                if self._is_killed:
                    self.kill()
            case RefusedAnswer(_, reason):
                text = f"has no process: {reason}; free memory or raise limits"
                self._end = ProcessEnd(text, is_cause=True)
            case EndedAnswer(_, code):
                self._end = end_of(code)

    def _end_untold(self, nursery_end: ProcessEnd | None) -> ProcessEnd | None:
        """What follows where the nursery has not told its end, or cannot any more.

        Must not listen: what the nursery told meanwhile would be lost.
        """
        if nursery_end is not None:
            return ProcessEnd(f"lost its nursery, which {nursery_end.text}", is_cause=True)
        now_s = time.monotonic()
        if self._descriptor is None:
            if now_s - self._ordered_at_s <= _START_PATIENCE_S:
                return None
            text = f"was not started by its nursery within {_START_PATIENCE_S:.0f} s"
        else:
            if not _is_readable(self._descriptor, 0.0):
                return None
            self._over_since_s = self._over_since_s or now_s
            if now_s - self._over_since_s <= _LAST_WORD_S:
                return None
            text = "ended, and its nursery does not say how"
        self._nursery.end()
        return ProcessEnd(text, is_cause=True)


def _is_readable(descriptor: int, timeout_s: float | None) -> bool:
    """Whether it is so within `timeout_s`; a process's descriptor is when the process has ended."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if timeout_s is None else 1000 * timeout_s))


class NurseryProcess:
    """One nursery, from its start to its end.

    Args:
        pid: a child of this process, which nobody else waits for.
        channel: this side's end of it; taken over.
    """

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._channel = channel
        self._decoder: msgspec.msgpack.Decoder[NurseryAnswer] = msgspec.msgpack.Decoder(
            NurseryAnswer
        )
        self._stages: dict[int, ForkedStage] = {}
        self._num_orders = 0
        self._end: ProcessEnd | None = None

    def poll(self) -> ProcessEnd | None:
        """Take in what it has said, without waiting; how it ended, or None before that."""
        with suppress(BlockingIOError):
            while self._end is None:
                heard = hear(self._channel, self._decoder)
                if heard is None:
                    self.end()
                else:
                    self._note(*heard)
        return self._end

    def order(self, worker_module: str, settings: WorkerSettings) -> ForkedStage:
        """Have a stage forked; returns at once.

        Raises:
            OSError: it takes no orders.
        """
        ticket = self._num_orders
        descriptors = settings.endpoints.links.descriptors
        say(self._channel, StartOrder(ticket, worker_module, settings), descriptors)
        self._num_orders += 1
        stage = self._stages[ticket] = ForkedStage(self)
        return stage

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to take in, up to `timeout_s`; it must not have ended."""
        _is_readable(self._channel.fileno(), timeout_s)

    def end(self) -> None:
        """End it now, if it has not ended; its stages follow by themselves."""
        if self._end is not None:
            return
        # It is there, be it as a zombie, until it is waited for.
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self._end = end_of(os.waitstatus_to_exitcode(status))
        self._channel.close()

    def _note(self, answer: NurseryAnswer, descriptors: tuple[int, ...]) -> None:
        if isinstance(answer, StartedAnswer) and not descriptors:
            self.end()  # there was no room for it, and without it the stage could not be ended
            return
        stage = self._stages[answer.ticket]
        stage.note(answer, descriptors)
        if not isinstance(answer, StartedAnswer):
            del self._stages[answer.ticket]
