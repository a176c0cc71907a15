"""Environment variables of the engine's containers, and texts that must not be read as such."""

from collections.abc import Mapping

from pipelineserve.api import EngineSpec
from pipelineserve.errors import Fault
from pipelineserve_operator.render import labels, names, places
from pipelineserve_operator.render.labels import Role
from pipelineserve_operator.render.subject import JsonObject, Subject

_OWN_PREFIX = "PSERVE_"
# getpass and others look these up, and an arbitrary user id has no entry that would tell.
_HOME = {"HOME": places.HOME_FOLDER, "USER": "pipelineserve"}

POD_NAME = "PSERVE_POD_NAME"
POD_IP = "PSERVE_POD_IP"
POD_INDEX = "PSERVE_POD_INDEX"
REPLICA = "PSERVE_REPLICA"
EPOCH = "PSERVE_EPOCH"
GROUP = "PSERVE_GROUP"
LEADER_HOST = "PSERVE_LEADER_HOST"

STATIC_CHUNK_TOKENS = "PSERVE_STATIC_CHUNK_TOKENS"
MAX_CHUNK_TOKENS = "PSERVE_MAX_CHUNK_TOKENS"

# What an engine is started with although its field is live: a container reads the value of the
# moment in which it starts, and the pod's template stays the same.
LIVE: Mapping[str, str] = {
    STATIC_CHUNK_TOKENS: "static-chunk-tokens",
    MAX_CHUNK_TOKENS: "max-chunk-tokens",
    "PSERVE_RECOVERY_MAX_RESTARTS": "recovery-max-restarts",
    "PSERVE_RECOVERY_WINDOW_SECONDS": "recovery-window-seconds",
}


def literal(text: str) -> str:
    """`text` for a container's argument, where `$(NAME)` stands for a variable."""
    return text.replace("$", "$$")


def reference(variable: str) -> str:
    """What the kubelet replaces by the variable's value."""
    return f"$({variable})"


def of_every_container() -> list[JsonObject]:
    """A home that can be written to, and a name for the user."""
    return [{"name": name, "value": value} for name, value in _HOME.items()]


def of_sidecar() -> list[JsonObject]:
    """Of which replica it is."""
    return [*of_every_container(), {"name": REPLICA, "valueFrom": _label(labels.REPLICA)}]


def of_member(subject: Subject, role: Role) -> list[JsonObject]:
    """Who a pod is; the same text in every pod's template, another value in every pod."""
    sources = {
        POD_NAME: _field("metadata.name"),
        POD_IP: _field("status.podIP"),
        EPOCH: _label(labels.EPOCH),
        GROUP: _label(labels.GROUP),
    }
    if role is Role.WORKER:
        sources[POD_INDEX] = _label("apps.kubernetes.io/pod-index")
    leader = f"{names.pod(reference(GROUP), 0)}.{names.members(subject.name)}"
    return [
        *of_every_container(),
        *({"name": name, "valueFrom": source} for name, source in sources.items()),
        {"name": LEADER_HOST, "value": leader},
    ]


def of_server(subject: Subject) -> list[JsonObject]:
    """The live fields that an engine is started with."""
    config_map = names.control(subject.name)
    return [
        {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}}}
        for name, key in LIVE.items()
    ]


def of_user(engine: EngineSpec) -> list[JsonObject]:
    """The resource's own; after ours, so that they may refer to them."""
    return [entry.model_dump(mode="json", by_alias=True, exclude_none=True) for entry in engine.env]


def faults_in(engine: EngineSpec) -> list[Fault]:
    """Variables that would take the place of ours."""
    return [
        Fault(
            f"spec.engine.env[{index}].name", f"{entry.name} is set by the operator; leave it out"
        )
        for index, entry in enumerate(engine.env)
        if entry.name in _HOME or entry.name.startswith(_OWN_PREFIX)
    ]


def _label(key: str) -> JsonObject:
    return _field(f"metadata.labels['{key}']")


def _field(path: str) -> JsonObject:
    return {"fieldRef": {"fieldPath": path}}
