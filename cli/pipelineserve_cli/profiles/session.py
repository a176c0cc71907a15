"""A whole measurement: stages started, every composition timed several times, stages ended.

Imports the engine, so it is imported only when something is measured.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_cli.profiles.compositions import Extent, compositions_of, decode_ladder
from pipelineserve_cli.profiles.fitting import Measured
from pipelineserve_cli.profiles.gaps import GapTimer
from pipelineserve_cli.profiles.stages import StageTimer, num_tokens_needed
from pipelineserve_cli.profiles.task import Task
from pipelineserve_cli.profiles.timings import Timings
from pipelineserve_engine.model_config import ModelShape as EngineModelShape
from pipelineserve_engine.model_config import load_config, shape_of
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.plan import PipelinePlan, make_plan, this_machine
from pipelineserve_engine.server import scheduler_settings
from pipelineserve_engine.settings import EngineSettings, parse_settings
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_simulator.hardware.description import ModelShape

_STEPS_TOGETHER = 4
_STEPS_ALONE = 2
_GAP_STEPS = 12
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

Tell = Callable[[str], None]


def measure(task: Task, folder: Path, tell: Tell) -> Measured:
    """Time everything; says on the way how long it will take.

    Args:
        task: what is measured.
        folder: of the model's files.
        tell: called with what is done, and how long it will take.

    Raises:
        PipelineServeError: the engine does not start with these flags.
        KeyboardInterrupt: Ctrl-C; the stages have ended then.
    """
    shape = shape_of(load_config(folder))
    as_served = _settings(task, folder)
    pool_tokens = _pool_tokens(as_served, shape)
    settings = replace(
        as_served,
        max_chunk_tokens=task.extent.chunk_tokens,
        static_chunk_tokens=task.extent.chunk_tokens,
        kv_tokens=num_tokens_needed(task.extent, as_served.block_tokens),
        kv_swap_tokens=0,
    )
    _require_context(task.extent, shape)
    # Before anything has a thread: it forks.
    with Nursery() as nursery:
        plan = make_plan(settings, shape, this_machine())
        with StageGroup(plan, nursery) as group:
            tell(f"Loading {task.model_name} into {plan.num_stages} stages")
            group.start(lambda _: None)
            timings = _timed(task, group, plan, settings, tell)
    return Measured(
        model=_model_of(shape, task.model_name, settings.dtype),
        device=task.device,
        layers_per_stage=plan.partition.layers_per_stage,
        kv_tokens=pool_tokens,
        timings=timings,
        extent=task.extent,
    )


def _timed(
    task: Task, group: StageGroup, plan: PipelinePlan, settings: EngineSettings, tell: Tell
) -> Timings:
    timings = Timings(plan.num_stages)
    timer = StageTimer(group, plan, task.extent, timings)
    one_slot = replace(scheduler_settings(settings, plan), num_slots=1)
    gaps = GapTimer(group, plan.num_stages, one_slot, timings)
    tell("Filling the KV cache")
    timer.fill_contexts()
    compositions = compositions_of(task.extent)
    for round_index in range(task.num_rounds):
        started_s = time.monotonic()
        for composition in compositions:
            timer.time_together(composition, _STEPS_TOGETHER)
        for composition in compositions:
            timer.time_alone(composition, _STEPS_ALONE)
        for num_requests in decode_ladder(task.extent.chunk_tokens)[::2]:
            gaps.time_gaps(num_requests, _GAP_STEPS)
        left_s = (task.num_rounds - round_index - 1) * (time.monotonic() - started_s)
        tell(f"Round {round_index + 1} of {task.num_rounds}: about {left_s:.0f} s left")
    return timings


def _settings(task: Task, folder: Path) -> EngineSettings:
    own = [f"--model-folder={folder}", f"--served-name={task.model_name}"]
    return parse_settings([*own, *task.flags])


def _pool_tokens(settings: EngineSettings, shape: EngineModelShape) -> int:
    """Of the engine that would serve with these flags."""
    plan = make_plan(settings, shape, this_machine())
    return plan.num_blocks * plan.block_tokens


def _require_context(extent: Extent, shape: EngineModelShape) -> None:
    if max(extent.context_tokens, extent.chunk_tokens) > shape.max_context_tokens:
        text = f"expected at most the model's own {shape.max_context_tokens} tokens, got {extent}"
        fault = Fault("--context-tokens, --chunk-tokens", f"{text}; lower them")
        raise InvalidInputError("the profile", [fault])


def _model_of(shape: EngineModelShape, name: str, dtype: str) -> ModelShape:
    num_bytes = _DTYPE_BYTES[dtype]
    return ModelShape(
        name=name,
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        layer_parameters=round(shape.costs.layer),
        vocabulary_size=shape.vocabulary_size,
        parameter_bytes=num_bytes,
        kv_bytes_per_layer_token=2 * shape.num_kv_heads * shape.head_dim * num_bytes,
    )
