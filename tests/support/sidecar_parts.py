"""A control loop on a scripted engine, in the test's own event loop and on the real clock."""

import asyncio
import io
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from control_turns import make_objectives
from pipelineserve.policy.control.objectives import ChunkLaw, Objectives
from pipelineserve_controller.chronicle import Chronicle
from pipelineserve_controller.cross_check import CrossCheck
from pipelineserve_controller.journal import Journal
from pipelineserve_controller.loop import ControlLoop
from pipelineserve_controller.objectives import ObjectivesStore, Source
from pipelineserve_controller.picture import Parts
from pipelineserve_controller.settings import SidecarSettings
from pipelineserve_controller.watch import EngineLink

PERIOD_S = 0.05
STATIC = make_objectives(chunk_law=ChunkLaw.STATIC, lease_s=2.0)


@dataclass
class RunningLoop:
    """What runs, for a test to look at."""

    loop: ControlLoop
    link: EngineLink
    store: ObjectivesStore
    announced: io.StringIO


async def until(condition: Callable[[], bool], what: str, deadline_s: float = 20.0) -> None:
    """Wait for a condition; fails naming what was waited for."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, f"expected {what} within {deadline_s:g} s"
        await asyncio.sleep(0.01)


def idle_loop(link: EngineLink | None = None) -> ControlLoop:
    """A loop that nobody runs, on an engine that is not there."""
    return _loop(link or make_link("unix:/nonexistent"), ObjectivesStore(), None, io.StringIO())


def make_link(address: str, silence_s: float = 10.0) -> EngineLink:
    """A link that nobody runs yet."""
    return link_of(SidecarSettings(engine_address=address), silence_s)


def link_of(settings: SidecarSettings, silence_s: float = 10.0) -> EngineLink:
    """A link with these settings that nobody runs yet."""
    return EngineLink(settings, time.time, random.Random(0), silence_s=silence_s)


@asynccontextmanager
async def running_loop(
    address: str,
    objectives: Objectives | None = STATIC,
    *,
    journal: Journal | None = None,
    silence_s: float = 10.0,
) -> AsyncIterator[RunningLoop]:
    """Link and loop as tasks; an exception in one of them fails the test."""
    link, store, announced = make_link(address, silence_s), ObjectivesStore(), io.StringIO()
    if objectives is not None:
        store.offer(objectives, Source.FILE, "resource")
    loop = _loop(link, store, journal, announced)
    async with running(link.run(), loop.run(PERIOD_S)):
        yield RunningLoop(loop, link, store, announced)


@asynccontextmanager
async def running(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these beside the block, and end them with it."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


def _loop(
    link: EngineLink, store: ObjectivesStore, journal: Journal | None, announced: io.StringIO
) -> ControlLoop:
    parts = Parts(link, store, Chronicle(), CrossCheck(""), started_unix_s=time.time(), version="1")
    return ControlLoop(parts, journal, time.monotonic, time.time, announced)
