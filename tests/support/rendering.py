"""What is rendered as a cluster would run it: pods of sets, arguments with variables filled in."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelineserve.api import resource_from_document
from pipelineserve_operator.render import JsonObject, OperatorSettings, Subject, subject_of
from resource_documents import changed, in_spec

UID = "6f1d9a3e-0c1b-4a55-9d0e-6f2a4a1f6c11"
SETTINGS = OperatorSettings(
    engine_image="example.com/engine:1",
    controller_image="example.com/controller:1",
    sglang_image="example.com/sglang:1",
    operator_address="operator.example.svc:8443",
    ca_bundle="-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
    version="1.2.3",
    has_pod_monitors=True,
    has_prometheus_rules=True,
)
POD_IP = "10.0.0.9"


def a_subject(changes: Mapping[str, Any] | None = None, name: str = "small") -> Subject:
    """The minimal resource on Torch in namespace `models`; changes by path below spec."""
    stored = {
        "metadata.name": name,
        "metadata.namespace": "models",
        "metadata.uid": UID,
        "metadata.generation": 3,
    }
    spec = in_spec({"engine.type": "Torch", **(changes or {})})
    return subject_of(resource_from_document(changed({**stored, **spec}), "test"))


def of_kind(objects: Iterable[JsonObject], kind: str) -> list[JsonObject]:
    """The objects of a kind, in their order."""
    return [one for one in objects if one["kind"] == kind]


@dataclass(frozen=True)
class Pod:
    """A pod of a StatefulSet as its controller would make it."""

    name: str
    labels: Mapping[str, str]
    spec: JsonObject

    def containers(self) -> list[JsonObject]:
        """All of them, init containers first."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def container(self, name: str) -> JsonObject:
        """The one of this name."""
        return next(one for one in self.containers() if one["name"] == name)

    def arguments(self, name: str, config_maps: Iterable[JsonObject] = ()) -> list[str]:
        """A container's arguments after the kubelet has filled in variables."""
        container = self.container(name)
        values = self._variables(container, config_maps)
        return [_expanded(argument, values) for argument in container["args"]]

    def document(self, namespace: str) -> JsonObject:
        """The pod as one would create it."""
        metadata = {"name": self.name, "namespace": namespace, "labels": dict(self.labels)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self.spec}

    def _variables(
        self, container: JsonObject, config_maps: Iterable[JsonObject]
    ) -> dict[str, str]:
        data = {one["metadata"]["name"]: one["data"] for one in config_maps}
        values: dict[str, str] = {}
        for entry in container.get("env", []):
            source = entry.get("valueFrom", {})
            if "value" in entry:
                values[entry["name"]] = _expanded(entry["value"], values)
            elif "fieldRef" in source:
                values[entry["name"]] = self._field(source["fieldRef"]["fieldPath"])
            elif (found := source.get("configMapKeyRef", {})).get("name") in data:
                values[entry["name"]] = data[found["name"]][found["key"]]
        return values

    def _field(self, path: str) -> str:
        if label := re.fullmatch(r"metadata\.labels\['(.*)'\]", path):
            return self.labels[label[1]]
        return {"metadata.name": self.name, "status.podIP": POD_IP}[path]


def pods_of(objects: Iterable[JsonObject]) -> list[Pod]:
    """Every pod of every StatefulSet, leaders before workers of a group."""
    return [pod for one in of_kind(objects, "StatefulSet") for pod in _pods_of_set(one)]


def _pods_of_set(one: JsonObject) -> Iterator[Pod]:
    template, start = one["spec"]["template"], one["spec"]["ordinals"]["start"]
    for ordinal in range(start, start + one["spec"]["replicas"]):
        name = f"{one['metadata']['name']}-{ordinal}"
        own = {
            "apps.kubernetes.io/pod-index": str(ordinal),
            "statefulset.kubernetes.io/pod-name": name,
        }
        yield Pod(name, {**template["metadata"]["labels"], **own}, template["spec"])


def _expanded(text: str, values: Mapping[str, str]) -> str:
    """As Kubernetes does it: `$$` is a dollar, an unknown variable stays as it is written."""

    def replaced(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else values.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replaced, text)
