"""All of the sidecar in one event loop: links, control loop, HTTP, and an orderly end."""

import asyncio
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Sequence
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from pipelineserve.errors import InvalidInputError
from pipelineserve.policy.control.turns import ControlMemory
from pipelineserve_controller.attend import OperatorAttendant, status_of
from pipelineserve_controller.chronicle import Chronicle
from pipelineserve_controller.cross_check import CrossCheck
from pipelineserve_controller.journal import Journal
from pipelineserve_controller.loop import ControlLoop
from pipelineserve_controller.objectives import ObjectivesFile, ObjectivesStore
from pipelineserve_controller.picture import Parts
from pipelineserve_controller.restoring import restored_memory
from pipelineserve_controller.service import build_app
from pipelineserve_controller.settings import SidecarSettings, parse_settings
from pipelineserve_controller.watch import EngineLink

logger = logging.getLogger("pipelineserve_controller")

_PARENT_LOOK_S = 0.5
_DRAIN_LOOK_S = 0.2


def main(arguments: Sequence[str]) -> int:
    """Run until a signal; 2 for settings that cannot be, 1 if something broke."""
    try:
        settings = parse_settings(arguments)
    except InvalidInputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    try:
        listener = socket.create_server((settings.host, settings.port))
    except OSError as error:
        sys.stderr.write(f"cannot listen on {settings.host}:{settings.port}: {error}\n")
        return 1
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    with listener:
        asyncio.run(Sidecar(settings).run(listener))
    return 0


class Sidecar:
    """Everything of one process, and how it ends."""

    def __init__(self, settings: SidecarSettings) -> None:
        chance = random.Random()  # noqa: S311 # it spreads connections, it guards nothing
        self._settings = settings
        self._chance = chance
        self._store = ObjectivesStore(settings.resource_uid)
        self._link = EngineLink(settings, time.time, chance)
        self._cross_check = CrossCheck(settings.engine_metrics_url)
        self._journal = _journal(settings)
        parts = Parts(
            link=self._link,
            store=self._store,
            chronicle=Chronicle(),
            cross_check=self._cross_check,
            started_unix_s=time.time(),
            version=metadata.version("pipelineserve"),
        )
        memory = _remembered(settings, self._journal)
        self._loop = ControlLoop(parts, self._journal, time.monotonic, time.time, memory=memory)
        self._server: uvicorn.Server | None = None

    async def run(self, listener: socket.socket) -> None:
        """Serve until a signal ends it; anything that breaks ends it too, for a restart."""
        app = build_app(self._loop, self._num_journal_lost, time.monotonic)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        self._server = _Server(config, self._settings.drain_seconds, self._link)
        for number in (signal.SIGINT, signal.SIGTERM):
            # Before uvicorn minds signals, and when it raises them again after its end.
            signal.signal(number, lambda *_: self._stop())
        host, port = listener.getsockname()[:2]
        logger.info("live state on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        tasks = [asyncio.create_task(part) for part in self._work()]
        serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        try:
            await asyncio.wait([*tasks, serving], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()  # raises what broke
        finally:
            self._server.should_exit = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, serving, return_exceptions=True)
            if self._journal is not None:
                self._journal.close()

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        settings = self._settings
        work = [self._link.run(), self._loop.run(1.0 / settings.turns_per_second)]
        if settings.engine_metrics_url:
            work.append(self._cross_check.run())
        if settings.objectives_file:
            work.append(ObjectivesFile(Path(settings.objectives_file), self._store).run())
        if settings.operator_address:
            attendant = OperatorAttendant(
                settings,
                self._store,
                lambda: status_of(settings, self._loop, self._store, self._link),
                self._chance,
            )
            work.append(attendant.run())
        if settings.parent_pid:
            work.append(self._follow_parent())
        return work

    def _stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True

    def _num_journal_lost(self) -> int:
        return self._journal.num_lost if self._journal else 0

    async def _follow_parent(self) -> None:
        """End once the process that started this one is gone, however it went."""
        while os.getppid() == self._settings.parent_pid:  # noqa: ASYNC110 # nothing tells of it
            await asyncio.sleep(_PARENT_LOOK_S)


class _Server(uvicorn.Server):
    """Goes on after SIGTERM while the engine still serves, so that its last requests are steered.

    Any second signal, and SIGINT, end it at once.
    """

    def __init__(self, config: uvicorn.Config, drain_s: float, link: EngineLink) -> None:
        super().__init__(config)
        self._drain_s = drain_s
        self._link = link
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn for SIGINT and SIGTERM."""
        if sig == signal.SIGTERM and self._draining is None and self._drain_s > 0:
            self._draining = asyncio.get_running_loop().create_task(self._drain(frame))
            return
        super().handle_exit(sig, frame)

    async def _drain(self, frame: FrameType | None) -> None:
        end_s = time.monotonic() + self._drain_s
        while self._link.is_connected and time.monotonic() < end_s:  # noqa: ASYNC110 # either ends it
            await asyncio.sleep(_DRAIN_LOOK_S)
        super().handle_exit(signal.SIGTERM, frame)


def _remembered(settings: SidecarSettings, journal: Journal | None) -> ControlMemory:
    """What an earlier run had learned; it is the start of this run's journal."""
    if journal is None:
        return ControlMemory()
    memory = restored_memory(Path(settings.journal_folder), time.monotonic(), time.time())
    journal.begin(memory)
    return memory


def _journal(settings: SidecarSettings) -> Journal | None:
    if not settings.journal_folder:
        return None
    return Journal(Path(settings.journal_folder), settings.journal_bytes, settings.journal_files)
