"""A resource as the flags of the torch engine's server."""

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
from pipelineserve_operator.render.engine_flags import as_flags, model_flags

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
# Flags that must agree with what this process does.
_OWN_FLAGS = (
    "--host",
    "--port",
    "--model-folder",
    "--served-name",
    "--parent-pid",
    "--drain-seconds",
    "--control-address",
)


def engine_flags(
    resource: PipelineServe, model_folder: Path, port: int, control_address: str = ""
) -> list[str]:
    """Flags of `python -m pipelineserve_engine.server` for one replica of the resource.

    The resource's own `engine.args` come last, so they win. Without a control address no
    controller is served.

    Raises:
        InvalidInputError: the resource asks for what local mode cannot run.
    """
    faults = _unsupported(resource)
    if faults:
        raise InvalidInputError(f"PipelineServe {resource.metadata.name} for local mode", faults)
    spec = resource.spec
    chunking = spec.effective_chunking()
    flags = {
        "model-folder": str(model_folder),
        **model_flags(spec, resource.served_name),
        "port": port,
        "static-chunk-tokens": chunking.static_tokens,
        "max-chunk-tokens": chunking.ceiling_tokens,
        "recovery-max-restarts": spec.recovery.max_restarts,
        "recovery-window-seconds": spec.recovery.window_seconds,
        "control-address": control_address,
    }
    return [*as_flags(flags), *spec.engine.args]


def drain_s(resource: PipelineServe) -> float:
    """How long running requests may go on when the resource is asked to stop."""
    return float(resource.spec.rollout.drain_seconds)


def inactive_fields(resource: PipelineServe, *, has_control: bool) -> list[Fault]:
    """Fields that are valid but have no effect in local mode, and what holds instead."""
    spec = resource.spec
    notes = [] if has_control else _without_controller(spec)
    cluster_only = [
        *((f"spec.{name}", name in spec.model_fields_set) for name in _CLUSTER_FIELDS),
        ("spec.engine.image", spec.engine.image is not None),
        ("spec.engine.env", bool(spec.engine.env)),
        ("spec.model.cache", spec.model.cache is not None),
        ("spec.model.tokenSecretRef", spec.model.token_secret_ref is not None),
    ]
    text = "has no effect in local mode"
    return notes + [
        Fault(_in_camel_case(name), text) for name, is_given in cluster_only if is_given
    ]


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


def _unsupported(resource: PipelineServe) -> list[Fault]:
    spec = resource.spec
    faults = []
    if spec.engine.type is not EngineType.TORCH:
        text = f"local mode runs Torch only, got {spec.engine.type.value}; set it to Torch"
        faults.append(Fault("spec.engine.type", text))
    if spec.replicas != 1:
        text = f"local mode runs one replica, got {spec.replicas}; set it to 1"
        faults.append(Fault("spec.replicas", text))
    if spec.parallelism.tensor_parallel != 1:
        text = f"the Torch engine has no tensor parallelism, got {spec.parallelism.tensor_parallel}"
        faults.append(Fault("spec.parallelism.tensorParallel", f"{text}; set it to 1"))
    if spec.api.key_secret_ref is not None:
        text = "local mode has no secrets; leave it out, the API listens on loopback only"
        faults.append(Fault("spec.api.keySecretRef", text))
    for index, argument in enumerate(spec.engine.args):
        if argument.split("=")[0] in _OWN_FLAGS:
            text = f"{argument.split('=')[0]} is set by pserve; leave it out"
            faults.append(Fault(f"spec.engine.args[{index}]", text))
    return faults
