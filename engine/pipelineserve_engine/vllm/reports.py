"""What the stages tell the scheduler's process: how long each micro-batch took them.

vLLM sends a micro-batch to all stages and hears from the last one only. So each stage's process
tells its own times through a datagram socket on this host, whose path comes with the micro-batch.
"""

import logging
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pipelineserve_engine.addon.ledger import StageReport

_MAX_DATAGRAM_BYTES = 1 << 16

logger = logging.getLogger(__name__)


class Reports:
    """The receiving end; a folder of its own, which only this user can enter, holds the socket.

    Attributes:
        path: of the socket.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="pipelineserve-")
        self.path = str(Path(self._folder) / "steps")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(self.path)

    def take(self) -> list[StageReport]:
        """What came since the last call; never waits."""
        reports: list[StageReport] = []
        while True:
            try:
                datagram = self._socket.recv(_MAX_DATAGRAM_BYTES)
            except BlockingIOError:
                return reports
            reports += msgspec.json.decode(datagram, type=list[StageReport])

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Reporter:
    """A stage's end; what it cannot send it says once, and control then ends by itself."""

    def __init__(self) -> None:
        self._unsent: list[StageReport] = []
        self._has_failed = False

    def send(self, path: str, reports: Sequence[StageReport]) -> None:
        """Tell these to the socket at this path, and first what it had no room for before."""
        if self._has_failed:
            return
        self._unsent += reports
        if not self._unsent:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.setblocking(False)  # never in the way of a micro-batch
                sending.sendto(msgspec.json.encode(self._unsent), path)
        except BlockingIOError:
            # As few as ten may wait there, of all stages together: more come while vLLM's scheduler
            # is busy. How many can be left here is bounded by what control waits for.
            return
        except OSError as error:
            self._has_failed = True
            logger.error("step times of this stage cannot be told: %s", error)  # noqa: TRY400
        self._unsent.clear()
