"""A step's time by its tokens, measured as FastPP's offline profile is: prompts of that length."""

import statistics
import time
from itertools import pairwise
from pathlib import Path

from prometheus_client import CollectorRegistry

from pipelineserve.policy.chunking import Static
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_engine.core import EngineCore
from pipelineserve_engine.generation import GenerationRequest
from pipelineserve_engine.model_config import load_config, shape_of
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.plan import make_plan, this_machine
from pipelineserve_engine.server import scheduler_settings
from pipelineserve_engine.settings import EngineSettings
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.telemetry import Telemetry

_WARM_UP_STEPS = 3
_TIMED_STEPS = 5


def measure_step_times(folder: Path, stages: int, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """Mean seconds between results of a full pipeline, for each size; never falling.

    Args:
        folder: of the model.
        stages: of the pipeline, one thread each.
        sizes: tokens of a micro-batch, each filled by one prompt of one output token.
    """
    settings = EngineSettings(
        model_folder=folder,
        served_name="step-times",
        stages=stages,
        max_chunk_tokens=sizes[-1],
        static_chunk_tokens=sizes[0],
        max_context_tokens=1024,
        threads_per_stage=1,
    )
    plan = make_plan(settings, shape_of(load_config(folder)), this_machine())
    with Nursery() as nursery, StageGroup(plan, nursery) as group:
        group.start(lambda _: None)
        times_s: list[float] = []
        for size in sizes:
            scheduler = Scheduler(scheduler_settings(settings, plan), Static(size))
            observer = Observer(Telemetry(CollectorRegistry()), plan.num_stages)
            core = EngineCore(scheduler, group, observer)
            measured_s = _mean_step_s(core, group, size, num_slots=plan.num_slots)
            # As the law's table must be: noise aside, more tokens never take less time.
            times_s.append(max([measured_s, *times_s[-1:]]))
    return tuple(times_s)


def _mean_step_s(core: EngineCore, group: StageGroup, size: int, *, num_slots: int) -> float:
    num_prompts = _WARM_UP_STEPS + _TIMED_STEPS + num_slots
    for index in range(num_prompts):
        prompt = tuple(1000 + 37 * index + 11 * position for position in range(size))
        core.submit(GenerationRequest(f"{size}-{index}", prompt, 1), time.monotonic())
    ends_s = []
    while core.scheduler.has_work:
        core.fill_slots(time.monotonic())
        reports = group.receive(1.0)
        ends_s += [time.monotonic() for report in reports if core.absorb(report, time.monotonic())]
    kept = ends_s[_WARM_UP_STEPS : _WARM_UP_STEPS + _TIMED_STEPS + 1]
    return statistics.mean(later - earlier for earlier, later in pairwise(kept))
