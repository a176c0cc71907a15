"""Pods as the runner needs them, read from rendered StatefulSets."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from pipelineserve_operator.render import JsonObject

_POD_INDEX = "apps.kubernetes.io/pod-index"
# Of Kubernetes, where a probe does not say.
_PERIOD_S = 10
_TIMEOUT_S = 1
_NUM_FAILURES = 3


class KeptKind(Enum):
    """Objects that hold texts under keys."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 # a kind of object


@dataclass(frozen=True, slots=True)
class KeptKey:
    """One key of a ConfigMap or Secret."""

    kind: KeptKind
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A text in which `$(NAME)` stands for an earlier variable."""

    text: str


@dataclass(frozen=True, slots=True)
class PodField:
    """A fact about the pod, by its path."""

    path: str


VariableSource: TypeAlias = Literal | PodField | KeptKey | None
"""None for what this machine has not, such as a container's limits."""


@dataclass(frozen=True, slots=True)
class EmptyFolder:
    """A folder that lives as long as its pod."""

    is_in_memory: bool


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """Keys of one object as files.

    Attributes:
        paths: of the file for each key.
    """

    kind: KeptKind
    name: str
    paths: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClaimedFolder:
    """A PersistentVolumeClaim."""

    claim_name: str


@dataclass(frozen=True, slots=True)
class HostFolder:
    """A folder of this machine."""

    path: str


VolumeSource: TypeAlias = EmptyFolder | KeptFiles | ClaimedFolder | HostFolder


@dataclass(frozen=True, slots=True)
class HttpGet:
    """Passes with a status from 200 to 399."""

    path: str
    port: int


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Passes with status 0."""

    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """What is asked, how often, and how many answers of a kind in a row count."""

    check: HttpGet | RunCommand
    initial_delay_s: float
    period_s: float
    timeout_s: float
    num_failures: int
    num_successes: int


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container.

    Attributes:
        image: what its command is run in; here a Python with the same packages stands for it.
        variables: in the order in which they may refer to each other.
        mounts: volumes by the path at which the container finds them.
    """

    name: str
    image: str
    command: tuple[str, ...]
    variables: tuple[tuple[str, VariableSource], ...]
    mounts: Mapping[str, str]
    startup: ProbeSpec | None
    liveness: ProbeSpec | None
    readiness: ProbeSpec | None


@dataclass(frozen=True, slots=True)
class PodSpec:
    """One pod of a StatefulSet, as its controller would make it.

    Attributes:
        namespace: of its set.
        service_name: of the headless Service that its names end in.
        grace_s: between the signal to end and the end by force.
    """

    name: str
    namespace: str
    service_name: str
    labels: Mapping[str, str]
    grace_s: float
    initial: tuple[ContainerSpec, ...]
    containers: tuple[ContainerSpec, ...]
    volumes: Mapping[str, VolumeSource]


def pods_of(objects: Iterable[JsonObject]) -> list[PodSpec]:
    """Every pod of every StatefulSet, in their order."""
    return [pod for one in objects if one["kind"] == "StatefulSet" for pod in _pods_of_set(one)]


def _pods_of_set(one: JsonObject) -> Iterator[PodSpec]:
    spec, template = one["spec"], one["spec"]["template"]
    first = spec["ordinals"]["start"]
    for ordinal in range(first, first + spec["replicas"]):
        yield PodSpec(
            name=f"{one['metadata']['name']}-{ordinal}",
            namespace=one["metadata"]["namespace"],
            service_name=spec["serviceName"],
            labels={**template["metadata"]["labels"], _POD_INDEX: str(ordinal)},
            grace_s=float(template["spec"]["terminationGracePeriodSeconds"]),
            initial=tuple(map(_container, template["spec"].get("initContainers", []))),
            containers=tuple(map(_container, template["spec"]["containers"])),
            volumes={volume["name"]: _source(volume) for volume in template["spec"]["volumes"]},
        )


def _container(one: JsonObject) -> ContainerSpec:
    ports = {port["name"]: port["containerPort"] for port in one.get("ports", [])}
    return ContainerSpec(
        name=one["name"],
        image=one["image"],
        command=(*one["command"], *one.get("args", [])),
        variables=tuple((entry["name"], _variable(entry)) for entry in one.get("env", [])),
        mounts={mount["mountPath"]: mount["name"] for mount in one.get("volumeMounts", [])},
        startup=_probe(one.get("startupProbe"), ports),
        liveness=_probe(one.get("livenessProbe"), ports),
        readiness=_probe(one.get("readinessProbe"), ports),
    )


def _variable(entry: JsonObject) -> VariableSource:
    match entry.get("valueFrom"):
        case None:
            return Literal(entry.get("value", ""))
        case {"fieldRef": {"fieldPath": path}}:
            return PodField(path)
        case {"configMapKeyRef": {"name": name, "key": key}}:
            return KeptKey(KeptKind.CONFIG_MAP, name, key)
        case {"secretKeyRef": {"name": name, "key": key}}:
            return KeptKey(KeptKind.SECRET, name, key)
        case _:
            return None


def _source(volume: JsonObject) -> VolumeSource:
    match volume:
        case {"emptyDir": source}:
            return EmptyFolder(source.get("medium") == "Memory")
        case {"configMap": source}:
            return KeptFiles(KeptKind.CONFIG_MAP, source["name"], _paths(source))
        case {"secret": source}:
            return KeptFiles(KeptKind.SECRET, source["secretName"], _paths(source))
        case {"persistentVolumeClaim": source}:
            return ClaimedFolder(source["claimName"])
        case {"hostPath": source}:
            return HostFolder(source["path"])
        case _:
            raise ValueError(f"expected a volume that this machine can have, got {volume}")


def _paths(source: JsonObject) -> dict[str, str]:
    return {item["key"]: item["path"] for item in source["items"]}


def _probe(one: JsonObject | None, ports: Mapping[str, int]) -> ProbeSpec | None:
    if one is None:
        return None
    return ProbeSpec(
        check=_check(one, ports),
        initial_delay_s=float(one.get("initialDelaySeconds", 0)),
        period_s=float(one.get("periodSeconds", _PERIOD_S)),
        timeout_s=float(one.get("timeoutSeconds", _TIMEOUT_S)),
        num_failures=one.get("failureThreshold", _NUM_FAILURES),
        num_successes=one.get("successThreshold", 1),
    )


def _check(one: JsonObject, ports: Mapping[str, int]) -> HttpGet | RunCommand:
    match one:
        case {"httpGet": {"path": path, "port": port}}:
            return HttpGet(path, port if isinstance(port, int) else ports[port])
        case {"exec": {"command": command}}:
            return RunCommand(tuple(command))
        case _:
            raise ValueError(f"expected a probe by httpGet or exec, got {one}")
