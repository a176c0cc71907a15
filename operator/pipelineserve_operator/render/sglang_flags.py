"""Flags and variables of SGLang's launcher, which runs once in each pod of a group."""

from pipelineserve.api import DType, EngineSpec
from pipelineserve.errors import Fault
from pipelineserve.metrics import LATENCY_BUCKETS_S
from pipelineserve_operator.render import places, variables
from pipelineserve_operator.render.engine_flags import as_flags
from pipelineserve_operator.render.labels import Role
from pipelineserve_operator.render.subject import JsonObject, Subject
from pipelineserve_operator.render.variables import reference

_API_KEY = "PSERVE_API_KEY"
_ADD_ON_PREFIX = "PIPELINESERVE_ADDON_"
_OWN_VARIABLES = frozenset({"SGLANG_PLUGINS", "SGLANG_PP_LAYER_PARTITION"})
_DTYPES = {
    DType.AUTO: "auto",
    DType.FLOAT32: "float32",
    DType.FLOAT16: "float16",
    DType.BFLOAT16: "bfloat16",
}
# What we set, by every name that SGLang knows it by.
_OWN = (
    *("--model-path", "--model", "--served-model-name", "--host", "--port", "--dtype"),
    *("--context-length", "--api-key", "--admin-api-key", "--pp-size"),
    *("--pipeline-parallel-size", "--tp-size", "--tensor-parallel-size", "--nnodes"),
    *("--node-rank", "--dist-init-addr", "--nccl-init-addr", "--chunked-prefill-size"),
    *("--enable-mixed-chunk", "--enable-metrics", "--bucket-time-to-first-token"),
    *("--bucket-inter-token-latency", "--bucket-e2e-request-latency"),
)
# Of its own these have next to nothing between 0.1 and 1 s, where targets are.
_BUCKET_FLAGS = tuple(name for name in _OWN if name.startswith("--bucket-"))
# With any of these the add-on would be inactive, or a file would set what is refused here.
_AGAINST_CONTROL = (
    *("--config", "--dp-size", "--data-parallel-size", "--enable-dp-attention"),
    *("--disaggregation-mode", "--enable-dynamic-chunking", "--enable-pdmux"),
    *("--speculative-algorithm", "--prefill-decode-interval", "--disable-chunked-prefix-cache"),
)


def flags(subject: Subject, role: Role, model_folder: str, listen_host: str) -> list[str]:
    """Of one pod's launcher; the resource's own arguments come after ours."""
    spec = subject.spec
    parallelism = spec.parallelism
    values: dict[str, str | int] = {
        "model-path": variables.literal(model_folder),
        "served-model-name": subject.served_name,
        "host": listen_host,
        "port": places.API_PORT,
        "dtype": _DTYPES[spec.model.dtype],
        "pp-size": parallelism.stages,
        "tp-size": parallelism.tensor_parallel,
        # The ceiling: SGLang sizes its buffers by it, and policies only go below.
        "chunked-prefill-size": reference(variables.MAX_CHUNK_TOKENS),
    }
    if spec.model.max_context_tokens:
        values["context-length"] = spec.model.max_context_tokens
    if spec.api.key_secret_ref is not None:
        values["api-key"] = reference(_API_KEY)
    if parallelism.pods_per_replica > 1:
        values |= _group(parallelism.pods_per_replica, role)
    ours = [*as_flags(values), *_buckets(), "--enable-mixed-chunk", "--enable-metrics"]
    return [*ours, *spec.engine.args]


def of_add_on(subject: Subject, role: Role) -> list[JsonObject]:
    """Variables of SGLang's container beside those of every member."""
    found = [
        *variables.of_server(subject),
        {
            "name": f"{_ADD_ON_PREFIX}STATIC_CHUNK_TOKENS",
            "value": reference(variables.STATIC_CHUNK_TOKENS),
        },
        {"name": "SGLANG_PLUGINS", "value": "pipelineserve"},
    ]
    if role is Role.LEADER:
        address = {"name": f"{_ADD_ON_PREFIX}CONTROL_ADDRESS", "value": places.CONTROL_ADDRESS}
        found.append(address)
    if per_stage := subject.spec.parallelism.layers.per_stage:
        layers = ",".join(map(str, per_stage))
        found.append({"name": "SGLANG_PP_LAYER_PARTITION", "value": layers})
    if (key := subject.spec.api.key_secret_ref) is not None:
        source = {"secretKeyRef": {"name": key.name, "key": key.key}}
        found.append({"name": _API_KEY, "valueFrom": source})
    return found


def faults_in(engine: EngineSpec) -> list[Fault]:
    """Arguments and variables that take the place of ours or break the control.

    SGLang takes any beginning of a flag that is unambiguous for the flag itself.
    """
    return [
        *(
            Fault(f"spec.engine.args[{index}]", text)
            for index, argument in enumerate(engine.args)
            if (text := _fault(argument.partition("=")[0]))
        ),
        *(
            Fault(
                f"spec.engine.env[{index}].name",
                f"{entry.name} is set by the operator; leave it out",
            )
            for index, entry in enumerate(engine.env)
            if entry.name in _OWN_VARIABLES or entry.name.startswith(_ADD_ON_PREFIX)
        ),
    ]


def _fault(name: str) -> str:
    if not name.startswith("--"):
        return ""
    name = name.replace("_", "-")
    if any(own.startswith(name) for own in _OWN):
        return (
            f"{name} is set by the operator; leave it out, or change the field of the spec that "
            "it comes from"
        )
    if any(breaking.startswith(name) for breaking in _AGAINST_CONTROL):
        return f"{name} would keep the engine from being controlled; leave it out"
    return ""


def _buckets() -> list[str]:
    """The catalogue's buckets, so that latencies of all engines add up."""
    bounds = [f"{bound_s:g}" for bound_s in LATENCY_BUCKETS_S]
    return [argument for flag in _BUCKET_FLAGS for argument in (flag, *bounds)]


def _group(num_pods: int, role: Role) -> dict[str, str | int]:
    is_worker = role is Role.WORKER
    # The leader's pod knows its own address without a name server.
    host = reference(variables.LEADER_HOST if is_worker else variables.POD_IP)
    return {
        "nnodes": num_pods,
        "node-rank": reference(variables.POD_INDEX) if is_worker else 0,
        "dist-init-addr": f"{host}:{places.GROUP_PORT}",
    }
