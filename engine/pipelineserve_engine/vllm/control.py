"""Control of one vLLM scheduler, from its making to its end: the leader, its server, its ticks."""

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from pipelineserve_engine.addon.mirror import EngineSizes
from pipelineserve_engine.addon.serving import ControlPart, EngineIdentity
from pipelineserve_engine.addon.settings import AddOnSettings, read_settings, variable
from pipelineserve_engine.vllm import plugin, reading
from pipelineserve_engine.vllm.leader import Leader
from pipelineserve_engine.vllm.reports import Reports
from pipelineserve_engine.vllm.suitability import reasons_against
from pipelineserve_engine.vllm.targets import installed_version, mismatches

_TICK_PERIOD_S = 0.02

logger = logging.getLogger(__name__)


class Control:
    """What the scheduler class calls; vLLM's thread and the ticker take turns.

    A whole turn is composed under one lock, so that a policy that is taken in meanwhile is in force
    from the next one on, as its controller is told.

    Attributes:
        lock: to be held for a whole turn.
    """

    def __init__(self, leader: Leader) -> None:
        self.lock = threading.RLock()
        self._leader = leader
        self._is_closed = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="control-ticks", daemon=True)
        self._ticker.start()

    def compose(self, scheduler: Any) -> None:
        """A turn begins: vLLM is about to compose."""
        self._leader.compose(scheduler, time.monotonic())

    def composed(self, scheduler: Any, output: Any) -> None:
        """It has."""
        self._leader.on_composed(scheduler, output, time.monotonic())

    def completed(self, output: Any, requests: Sequence[Any]) -> None:
        """A micro-batch is back."""
        with self.lock:
            self._leader.on_completed(output, requests, time.monotonic())

    def accepted(self, request: Any) -> None:
        """A request is in the queue."""
        with self.lock:
            self._leader.on_accepted(request, time.monotonic())

    def preempted(self, request: Any) -> None:
        """A request is in the queue again."""
        with self.lock:
            self._leader.on_preempted(request, time.monotonic())

    def ended(self, requests: Sequence[Any]) -> None:
        """Requests were ended from outside."""
        with self.lock:
            self._leader.on_ended(requests, time.monotonic())

    def close(self) -> None:
        """No more ticks."""
        self._is_closed.set()
        self._ticker.join()

    def _tick(self) -> None:
        while not self._is_closed.wait(_TICK_PERIOD_S):
            with self.lock:
                self._leader.tick(time.monotonic())


def begin_control(
    scheduler: Any, stack: ExitStack, environ: Mapping[str, str] = os.environ
) -> Control | None:
    """Control of a scheduler that was just made; None if there is none, which is told.

    Args:
        scheduler: vLLM's.
        stack: control ends with it.
        environ: has the settings.
    """
    try:
        return _begun(scheduler, stack, environ)
    except Exception:
        logger.exception("the add-on could not begin; vLLM serves as if there were none")
        stack.close()  # or what has begun would listen, and never answer
        return None


def _begun(scheduler: Any, stack: ExitStack, environ: Mapping[str, str]) -> Control | None:
    settings = read_settings(environ)
    if settings is None or not settings.control_address:
        logger.warning("the add-on is inactive: %s is not set", variable("control_address"))
        return None
    reasons = mismatches(installed_version()) or reasons_against(
        scheduler, settings, is_plugin_loaded=plugin.is_loaded()
    )
    if reasons:
        _refuse(settings, stack, "; ".join(reasons))
        return None
    sizes = sizes_of(scheduler)
    reports = Reports()
    stack.callback(reports.close)
    part = stack.enter_context(ControlPart(settings, _identity(), sizes))
    # Nobody asks for the turn before the control is made: questions wait for its first tick.
    leaders: list[Leader] = []
    parts = part.begin(lambda: leaders[0].turn)
    leaders.append(Leader(parts, sizes, reports.take, reports.path))
    control = Control(leaders[0])
    stack.callback(control.close)
    return control


def sizes_of(scheduler: Any) -> EngineSizes:
    """What does not change while vLLM runs."""
    config = scheduler.vllm_config
    return EngineSizes(
        num_stages=config.parallel_config.pipeline_parallel_size,
        num_slots=config.max_concurrent_batches,
        max_chunk_tokens=scheduler.max_num_scheduled_tokens,
        page_tokens=scheduler.block_size,
        least_piece_tokens=0,
        kv_tokens=reading.kv_tokens(scheduler),
        is_mixed=True,
        can_hold=True,
        ends_lone_decodes=False,  # it takes KV back from any request
    )


def _refuse(settings: AddOnSettings, stack: ExitStack, reason: str) -> None:
    """Say to whoever asks why nothing is controlled."""
    logger.error("the add-on is inactive: %s; vLLM serves as if there were none", reason)
    sizes = EngineSizes(
        num_stages=1,
        num_slots=1,
        max_chunk_tokens=1,
        page_tokens=1,
        least_piece_tokens=0,
        kv_tokens=0,
        is_mixed=True,
        can_hold=False,
        ends_lone_decodes=False,
    )
    stack.enter_context(ControlPart(settings, _identity(), sizes)).refuse(reason)


def _identity() -> EngineIdentity:
    return EngineIdentity("vllm", "vLLM", installed_version())
