"""What local mode cannot run, and which fields have no effect in it."""

from pathlib import Path

from pipelineserve.api import (
    ChunkingPolicy,
    EngineType,
    PipelineServe,
    PipelineServeSpec,
    QueueOrder,
    RebalancingMode,
)
from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_cli.sglang_python import FLAG, VARIABLE

# Parts of the spec that only a cluster obeys.
_CLUSTER_FIELDS = (
    "autoscaling",
    "monitoring",
    "resources",
    "placement",
    "pod_metadata",
    "network_policy",
    "restart_time",
)
_NO_EFFECT = "has no effect in local mode"


def require_local(resource: PipelineServe, sglang_python: Path | None) -> None:
    """Refuse what cannot run on this machine.

    Args:
        resource: to run.
        sglang_python: that SGLang would run in; None: there is none.

    Raises:
        InvalidInputError: with all of it.
    """
    spec = resource.spec
    faults = []
    if spec.engine.type is EngineType.SGLANG and sglang_python is None:
        text = "SGLang is not installed here; name the Python of an environment that has it with "
        faults.append(Fault("spec.engine.type", f"{text}{FLAG} or {VARIABLE}, or set it to Torch"))
    if spec.api.key_secret_ref is not None:
        text = "local mode has no secrets; leave it out, the API listens on loopback only"
        faults.append(Fault("spec.api.keySecretRef", text))
    if faults:
        raise InvalidInputError(f"PipelineServe {resource.name} for local mode", faults)


def inactive_fields(resource: PipelineServe, *, has_control: bool) -> list[Fault]:
    """Fields that are valid but have no effect in local mode, and what holds instead."""
    spec = resource.spec
    notes = [] if has_control else _without_controller(spec)
    if spec.replicas != 1:
        text = f"local mode runs one, got {spec.replicas}; more would only share this machine"
        notes.append(Fault("spec.replicas", text))
    cluster_only = [
        *((f"spec.{name}", name in spec.model_fields_set) for name in _CLUSTER_FIELDS),
        ("spec.engine.image", spec.engine.image is not None),
        ("spec.model.cache.sizeLimit", _has_size_limit(spec)),
    ]
    notes += [
        Fault(_in_camel_case(name), _NO_EFFECT) for name, is_given in cluster_only if is_given
    ]
    return notes + _of_shared_devices(spec) + _from_this_environment(spec)


def _has_size_limit(spec: PipelineServeSpec) -> bool:
    return spec.model.cache is not None and spec.model.cache.size_limit is not None


def _of_shared_devices(spec: PipelineServeSpec) -> list[Fault]:
    if spec.engine.type is not EngineType.SGLANG or spec.parallelism.pods_per_replica == 1:
        return []
    text = "pods of one machine share its GPUs, which only a cluster divides among them"
    return [Fault("spec.parallelism.stagesPerPod", f"{text}; leave it out, unless on CPUs")]


def _from_this_environment(spec: PipelineServeSpec) -> list[Fault]:
    """Variables whose values only a cluster holds."""
    names = {
        f"spec.engine.env[{index}]": entry.name
        for index, entry in enumerate(spec.engine.env)
        if entry.value_from is not None and "fieldRef" not in entry.value_from
    }
    if spec.model.token_secret_ref is not None:
        names["spec.model.tokenSecretRef"] = "HF_TOKEN"
    text = "local mode has no secrets; {} is taken from the environment of pserve"
    return [Fault(field, text.format(name)) for field, name in names.items()]


def _without_controller(spec: PipelineServeSpec) -> list[Fault]:
    chunking = spec.effective_chunking()
    notes = []
    if chunking.policy is not ChunkingPolicy.STATIC:
        text = f"{chunking.policy.value} needs a controller; every micro-batch gets"
        notes.append(Fault("spec.chunking.policy", f"{text} {chunking.static_tokens} tokens"))
    if spec.rebalancing.mode is not RebalancingMode.OFF:
        text = f"{spec.rebalancing.mode.value} needs a controller; no request is held"
        notes.append(Fault("spec.rebalancing.mode", text))
    if spec.queueing.order is not QueueOrder.ARRIVAL:
        text = f"{spec.queueing.order.value} needs a controller; the order is Arrival"
        notes.append(Fault("spec.queueing.order", text))
    if "control" in spec.model_fields_set:
        notes.append(Fault("spec.control", "no controller runs"))
    return notes


def _in_camel_case(path: str) -> str:
    head, *words = path.split("_")
    return head + "".join(word.capitalize() for word in words)
