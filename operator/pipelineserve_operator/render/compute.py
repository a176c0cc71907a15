"""Requests and limits: a stage's share, taken as often as a container has stages."""

from collections.abc import Mapping

from pipelineserve.api import EngineType, ResourcesSpec
from pipelineserve_operator.render.quantities import smaller, times
from pipelineserve_operator.render.subject import JsonObject, Subject

# Tokenizer, scheduler and API; what a server takes whose stages are other containers.
_SERVER_REQUESTS = {"cpu": "500m", "memory": "1Gi"}
_SGLANG_DEVICE = "nvidia.com/gpu"
_CONTROLLER_REQUESTS = {"cpu": "50m", "memory": "128Mi"}


def of_stages(subject: Subject, num_stages: int) -> JsonObject:
    """For a container that runs so many stages, with their devices."""
    resources = subject.spec.resources
    per_stage = subject.spec.parallelism.tensor_parallel
    devices = {} if (name := _device_name(subject)) is None else {name: str(per_stage)}
    limits = _taken({**devices, **resources.stage.limits}, num_stages)
    return _named(_taken(resources.stage.requests, num_stages), limits)


def of_fetch(subject: Subject) -> JsonObject:
    """For the container that fetches the model: what runs after it, less its devices."""
    stage, device = subject.spec.resources.stage, _device_name(subject)
    num_stages = subject.spec.parallelism.effective_stages_per_pod
    requests, limits = (
        _taken({name: value for name, value in given.items() if name != device}, num_stages)
        for given in (stage.requests, stage.limits)
    )
    return _named(requests, limits)


def of_server(subject: Subject) -> JsonObject:
    """For a server whose stages are containers beside it.

    It sizes KV and threads by its own limits, so these are the ones of its pod's stages together.
    """
    stage = subject.spec.resources.stage
    num_stages = subject.spec.parallelism.effective_stages_per_pod
    held = {name: stage.limits[name] for name in _SERVER_REQUESTS if name in stage.limits}
    limits = _taken(held, num_stages)
    requests = {
        name: smaller(wanted, limits[name]) if name in limits else wanted
        for name, wanted in _SERVER_REQUESTS.items()
    }
    return _named(requests, limits)


def of_controller(resources: ResourcesSpec) -> JsonObject:
    """As given; if nothing is, the little that it takes."""
    given = resources.controller
    if not given.requests and not given.limits:
        return _named(_CONTROLLER_REQUESTS, {})
    return _named(given.requests, given.limits)


def _device_name(subject: Subject) -> str | None:
    """What the cluster counts devices by; None if no stage has one."""
    given = subject.spec.resources.device_resource_name
    match subject.spec.engine.type:
        case EngineType.TORCH:
            return given
        case EngineType.SGLANG:
            return given or _SGLANG_DEVICE


def _taken(quantities: Mapping[str, str], factor: int) -> dict[str, str]:
    return {name: times(quantity, factor) for name, quantity in quantities.items()}


def _named(requests: Mapping[str, str], limits: Mapping[str, str]) -> JsonObject:
    parts = {"requests": dict(requests), "limits": dict(limits)}
    return {name: part for name, part in parts.items() if part}
