"""Flags of the torch engine's programs, `python -m pipelineserve_engine.…`."""

from collections.abc import Mapping, Sequence

from pipelineserve.api import DType, EngineSpec, PipelineServeSpec
from pipelineserve.errors import Fault
from pipelineserve_operator.render import names, places, variables
from pipelineserve_operator.render.labels import Role
from pipelineserve_operator.render.subject import Subject
from pipelineserve_operator.render.variables import reference

_TORCH_DTYPES = {
    DType.AUTO: "float32",
    DType.FLOAT32: "float32",
    DType.FLOAT16: "float16",
    DType.BFLOAT16: "bfloat16",
}
# Beside those that a field of the spec or the pod decides.
_NEVER_GIVEN = (
    "control-tls-certificate",
    "control-tls-key",
    "control-tls-client-ca",
    "parent-pid",
)
_ONLY_WITH_SEVERAL_PODS = (
    "stage-addresses",
    "leader-address",
    "leader-port",
    "group-key-file",
    "group-epoch",
)


def _model_flags(spec: PipelineServeSpec, served_name: str) -> dict[str, str | int]:
    """What a server is told of model and pipeline."""
    return {
        "served-name": served_name,
        "stages": spec.parallelism.stages,
        "layers-per-stage": ",".join(map(str, spec.parallelism.layers.per_stage or ())),
        "dtype": _TORCH_DTYPES[spec.model.dtype],
        "max-context-tokens": spec.model.max_context_tokens or 0,
        "drain-seconds": spec.rollout.drain_seconds,
    }


def server_flags(subject: Subject, model_folder: str, listen_host: str) -> list[str]:
    """Flags of a group's server; the resource's own arguments come after ours."""
    spec = subject.spec
    flags = {
        "model-folder": variables.literal(model_folder),
        **_model_flags(spec, subject.served_name),
        "host": listen_host,
        "port": places.API_PORT,
        **{key: reference(variable) for variable, key in variables.LIVE.items()},
        "control-address": places.CONTROL_ADDRESS,
    }
    if spec.api.key_secret_ref is not None:
        flags["api-key-file"] = f"{places.API_FOLDER}/{places.API_KEYS}"
    if spec.parallelism.pods_per_replica > 1:
        flags |= _group_flags(spec)
    return [*as_flags(flags), *spec.engine.args]


def stage_host_flags(
    spec: PipelineServeSpec, role: Role, index_in_pod: int, model_folder: str
) -> list[str]:
    """Flags of the program that runs one stage of a group that has several pods."""
    is_worker = role is Role.WORKER
    # The leader's pod knows its own address without a name server.
    host = reference(variables.LEADER_HOST if is_worker else variables.POD_IP)
    flags: dict[str, str | int] = {
        "leader": f"{host}:{places.GROUP_PORT}",
        "host-index": reference(variables.POD_INDEX) if is_worker else 0,
        "stages-per-host": spec.parallelism.effective_stages_per_pod,
        "stage-index": index_in_pod,
        "model-folder": variables.literal(model_folder),
        "address": reference(variables.POD_NAME),
        "group-key-file": f"{places.GROUP_FOLDER}/{places.GROUP_KEY}",
        "group-epoch": reference(variables.EPOCH),
    }
    return as_flags(flags)


def faults_in(engine: EngineSpec) -> list[Fault]:
    """Arguments that contradict what a field of the spec says or the pod is made for."""
    own = {f"--{name}" for name in _own_names()}
    return [
        Fault(
            f"spec.engine.args[{index}]",
            f"{argument.partition('=')[0]} is set by the operator; leave it out, "
            "or change the field of the spec that it comes from",
        )
        for index, argument in enumerate(engine.args)
        if argument.partition("=")[0] in own
    ]


def as_flags(flags: Mapping[str, str | int]) -> list[str]:
    """One argument each."""
    return [f"--{name}={value}" for name, value in flags.items()]


def _group_flags(spec: PipelineServeSpec) -> dict[str, str | int]:
    """Where stages run. A pod's name is in its own hosts file before its first container starts.

    Each stage binds to its own address only, and tells the others where: no name server is asked.
    """
    return {
        "stage-addresses": ",".join(_stage_addresses(spec)),
        "leader-address": reference(variables.POD_IP),
        "leader-port": places.GROUP_PORT,
        "group-key-file": f"{places.GROUP_FOLDER}/{places.GROUP_KEY}",
        "group-epoch": reference(variables.EPOCH),
    }


def _stage_addresses(spec: PipelineServeSpec) -> Sequence[str]:
    leader = reference(variables.GROUP)
    workers = names.worker_set(leader)
    num_pods = spec.parallelism.pods_per_replica
    pods = [names.pod(leader, 0), *(names.pod(workers, index) for index in range(1, num_pods))]
    return [pod for pod in pods for _ in range(spec.parallelism.effective_stages_per_pod)]


def _own_names() -> set[str]:
    # Listed apart from where they are set: what is refused must not depend on the spec.
    return {
        *("model-folder", "served-name", "stages", "layers-per-stage", "dtype"),
        *("max-context-tokens", "drain-seconds", "host", "port", "control-address"),
        *("api-key-file", *variables.LIVE.values(), *_ONLY_WITH_SEVERAL_PODS, *_NEVER_GIVEN),
    }
