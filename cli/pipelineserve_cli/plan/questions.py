"""From options to the question that a plan answers; whatever is wrong is said by its flag."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.arrivals import Poisson
from pipelineserve.load.targets import Target, Targets
from pipelineserve_cli.plan.options import PlanOptions
from pipelineserve_simulator.hardware.devices import find_device, find_link
from pipelineserve_simulator.planning.demand import demand_of
from pipelineserve_simulator.planning.machines import machine_for
from pipelineserve_simulator.planning.models import PlannedModel, find_model
from pipelineserve_simulator.planning.search import Question
from pipelineserve_simulator.workloads.arriving import RandomArrivals
from pipelineserve_simulator.workloads.generated import GeneratedWorkload
from pipelineserve_simulator.workloads.lengths import IndependentLengths
from pipelineserve_simulator.workloads.registry import WorkloadName, WorkloadOptions, make_workload
from pipelineserve_simulator.workloads.requests import Workload

_SUBJECT = "the question"
_FLAGS = {
    "model": "--model",
    "gpu": "--gpu",
    "link": "--link",
    "rate_per_s": "--rate",
    "rate_scale": "--rate-scale",
    "num_requests": "--requests",
}


def question_of(options: PlanOptions) -> Question:
    """Everything that the answer depends on.

    Raises:
        InvalidInputError: something is unknown, missing or contradicts something else.
    """
    targets = _targets(options)
    with _flags_named():
        model = find_model(options.model)
        device = find_device(options.gpu)
        link = device.link if options.link is None else find_link(options.link)
        workload = _workload(options)
    _require_possible(options, model)
    return Question(
        model=model,
        machine=machine_for(model.shape, device, link),
        num_devices=options.gpus,
        workload=workload,
        demand=demand_of(workload, options.percentile, options.rate),
        targets=targets,
        max_chunk_tokens=options.max_chunk_tokens,
        tensor_parallel=options.tensor_parallel,
        num_stages=options.stages,
    )


def _targets(options: PlanOptions) -> Targets:
    if options.ttft_ms is None and options.tpot_ms is None:
        text = "got no target, expected --ttft-ms, --tpot-ms or both, in milliseconds"
        raise InvalidInputError(_SUBJECT, [Fault("--ttft-ms", text)])
    ttft, tpot = (
        None if value is None else Target(options.percentile, value / 1000)
        for value in (options.ttft_ms, options.tpot_ms)
    )
    return Targets(ttft, tpot)


def _workload(options: PlanOptions) -> Workload:
    if options.workload is not None:
        if options.input_tokens is not None or options.output_tokens is not None:
            text = "got lengths as well, expected either a workload or lengths"
            raise InvalidInputError(_SUBJECT, [Fault("--workload", text)])
        given = WorkloadOptions(options.rate, options.rate_scale, options.requests)
        return make_workload(WorkloadName(options.workload), given)
    if options.input_tokens is None or options.output_tokens is None:
        text = "got none, expected a workload, or both --input-tokens and --output-tokens"
        raise InvalidInputError(_SUBJECT, [Fault("--workload", text)])
    if options.rate is None or options.rate_scale is not None:
        text = "needed, without --rate-scale: lengths say nothing of when requests arrive"
        raise InvalidInputError(_SUBJECT, [Fault("--rate", text)])
    return GeneratedWorkload(
        IndependentLengths(options.input_tokens, options.output_tokens),
        RandomArrivals(Poisson(options.rate)),
        options.requests,
    )


def _require_possible(options: PlanOptions, model: PlannedModel) -> None:
    """What was asked for by number must exist at all."""
    faults = []
    stages, shards = options.stages or 1, options.tensor_parallel or 1
    if stages > model.shape.num_layers:
        text = (
            f"got {stages}, expected at most {model.shape.num_layers}: {model.shape.name} has no "
            "more layers, and each stage needs one"
        )
        faults.append(Fault("--stages", text))
    if stages * shards > options.gpus:
        text = (
            f"got {options.gpus}, expected at least {stages * shards} for {stages} stages of "
            f"{shards} GPUs each"
        )
        faults.append(Fault("--gpus", text))
    if shards & (shards - 1):
        text = f"got {shards}, expected 1, 2, 4 or 8"
        faults.append(Fault("--tensor-parallel", text))
    if faults:
        raise InvalidInputError(_SUBJECT, faults)


@contextmanager
def _flags_named() -> Iterator[None]:
    """The user knows flags, not the names of the simulator's fields."""
    try:
        yield
    except InvalidInputError as error:
        faults = [
            Fault(_FLAGS.get(fault.field, fault.field), fault.message) for fault in error.faults
        ]
        raise InvalidInputError(error.subject, faults) from error
