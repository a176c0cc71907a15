"""Times the server's own work between two micro-batches: composing, sending, taking in.

Imports the engine, so it is imported only when something is measured.
"""

import time
from itertools import count

from pipelineserve.policy.chunking import Static
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_cli.profiles.timings import Timings
from pipelineserve_engine.core import EngineCore
from pipelineserve_engine.generation import GenerationRequest
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.stage_messages import StepReport
from pipelineserve_engine.telemetry import unread_telemetry

_PROMPT_TOKENS = 4
_WAIT_S = 1.0
_TOKEN_ID = 11


class GapTimer:
    """Runs decodes through the engine's core, one micro-batch in flight.

    Args:
        group: the stages, ready and idle.
        num_stages: of the pipeline.
        sizes: of the scheduler; one slot, so that each micro-batch waits for the one before.
        timings: where samples go.
    """

    def __init__(
        self, group: StageGroup, num_stages: int, sizes: SchedulerSettings, timings: Timings
    ) -> None:
        self._group = group
        self._num_stages = num_stages
        self._sizes = sizes
        self._timings = timings
        self._ids = count()

    def time_gaps(self, num_requests: int, num_steps: int) -> None:
        """So many requests decode together, so often."""
        scheduler = Scheduler(self._sizes, Static(self._sizes.max_chunk_tokens))
        observer = Observer(unread_telemetry(), self._num_stages)
        core = EngineCore(scheduler, self._group, observer)
        for _ in range(num_requests):
            index = next(self._ids)
            # Shorter than any block, so that none is found in the prefix cache.
            prompt = (_TOKEN_ID,) * _PROMPT_TOKENS
            core.submit(GenerationRequest(f"{index}", prompt, num_steps + 2), time.monotonic())
        ends_s: dict[int, float] = {}
        while scheduler.has_work:
            core.fill_slots(time.monotonic())
            # Not while prompts are in the way, nor when some have ended before the others.
            is_full = scheduler.view(0, 0.0).num_decoding == num_requests
            for report in self._group.receive(_WAIT_S):
                if isinstance(report, StepReport):
                    # By sequence: reports of different stages may come in any order.
                    before_s = ends_s.get(report.sequence - 1)
                    if report.stage_index == 0 and before_s is not None and is_full:
                        self._note(num_requests, report.start_s - before_s)
                    if report.token_ids is not None:
                        ends_s[report.sequence] = report.end_s
                core.absorb(report, time.monotonic())

    def _note(self, num_requests: int, gap_s: float) -> None:
        self._timings.gaps_s.setdefault(num_requests, []).append(gap_s)
