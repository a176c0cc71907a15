"""The nursery's own side: imports once, forks stages as it is told, says how they end.

It has one thread and computes nothing. So a fork finds no lock held, no pool of threads that the
child would believe in, and no CUDA context, of which a child could make no use.
"""

import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

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
from pipelineserve_engine.stage_process import WORKER_MODULE

# The owner decides when its nursery and the stages end, so a signal to all processes of a container
# or a user must not. A terminal's Ctrl-C does not come here: each has a process group of its own.
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Where a nursery that was spawned finds its channel.
CHANNEL_DESCRIPTOR = 3
NURSERY_NAME = "pserve-nursery"
STAGE_NAME = "pserve-stage"

_FIRST_OTHER_DESCRIPTOR = 3


def preload() -> None:
    """Import all that a stage needs; by name, since an owner need not have torch to be one."""
    importlib.import_module(WORKER_MODULE).preload()


def tend(channel: socket.socket) -> NoReturn:
    """Be a nursery, and nothing else any more, until the owner's end of the channel is closed.

    Begun with `IGNORED_SIGNALS` blocked, so that none comes before it is ignored.
    """
    end_with(lambda: _tend(channel))


def end_with(call: Callable[[], int]) -> NoReturn:
    """End with the call's exit status: nothing that the forked stack has left to do is done."""
    code = 1
    try:
        code = call()
    except BaseException:  # noqa: BLE001 - as at the end of any process
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # its reader is gone, or it is closed
                stream.flush()
        os._exit(code)


def _tend(channel: socket.socket) -> int:
    os.setpgid(0, 0)
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_SIGNALS)
    close_others([channel.fileno()])
    name_process(NURSERY_NAME)
    preload()
    # What is there now stays: stages share its memory as long as no collector writes to it.
    gc.freeze()
    with suppress(ConnectionError):  # the owner is gone, which is the usual end
        _Tending(channel).run()
    return 0


@dataclass(frozen=True, slots=True)
class _Child:
    ticket: int
    pid: int


class _Tending:
    """Orders in, answers out; children by the descriptors that tell of their end."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._decoder = msgspec.msgpack.Decoder(StartOrder)
        self._children: dict[int, _Child] = {}
        self._poller = select.poll()
        self._poller.register(channel, select.POLLIN)

    def run(self) -> None:
        """Return when no more orders can come; those that came before are carried out."""
        while True:
            for descriptor, _ in self._poller.poll():
                if descriptor in self._children:
                    self._bury(descriptor)
                elif (heard := hear(self._channel, self._decoder)) is None:
                    return
                else:
                    self._obey(*heard)

    def _obey(self, order: StartOrder, descriptors: Sequence[int]) -> None:
        try:
            child, descriptor = self._fork(order, descriptors)
        except OSError as error:
            self._answer(RefusedAnswer(order.ticket, str(error)))
            return
        finally:
            for number in descriptors:
                os.close(number)
        self._children[descriptor] = child
        self._poller.register(descriptor, select.POLLIN)
        self._answer(StartedAnswer(child.ticket, child.pid), [descriptor])

    def _fork(self, order: StartOrder, descriptors: Sequence[int]) -> tuple[_Child, int]:
        num_expected = len(order.settings.endpoints.links.descriptors)
        if len(descriptors) != num_expected:
            # The system leaves out those for which there is no room.
            text = f"{len(descriptors)} of {num_expected} descriptors came; too many are open"
            raise OSError(text)
        nursery_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            end_with(lambda: _be_stage(order, descriptors, nursery_pid))
        try:
            return _Child(order.ticket, pid), os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def _bury(self, descriptor: int) -> None:
        child = self._children.pop(descriptor)
        self._poller.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(child.pid, 0)
        self._answer(EndedAnswer(child.ticket, os.waitstatus_to_exitcode(status)))

    def _answer(self, answer: NurseryAnswer, descriptors: Sequence[int] = ()) -> None:
        say(self._channel, answer, descriptors)


def _be_stage(order: StartOrder, descriptors: Sequence[int], nursery_pid: int) -> int:
    os.setpgid(0, 0)
    close_others(descriptors)
    settings = order.settings
    name_process(f"{STAGE_NAME}-{settings.stage_index}")
    links = settings.endpoints.links.with_descriptors(descriptors)
    endpoints = msgspec.structs.replace(settings.endpoints, links=links)
    settings = msgspec.structs.replace(settings, endpoints=endpoints)
    code: int = importlib.import_module(order.worker_module).main(settings, nursery_pid)
    return code


def close_others(kept: Collection[int]) -> None:
    """Close all descriptors but those kept and standard input, output and error."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        number = int(name)
        if number >= _FIRST_OTHER_DESCRIPTOR and number not in kept:
            with suppress(OSError):  # the one of the listing itself is closed by now
                os.close(number)


def name_process(name: str) -> None:
    """Name this process for `ps` and `top`, at most 15 characters: a fork has its parent's name."""
    Path("/proc/self/comm").write_text(name)
