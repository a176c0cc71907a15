"""An API server in memory, with the parts of Kubernetes that answer an operator.

Apply keeps a note of whose fields are whose, as coarse as it gets: each list is one field. The
controllers of StatefulSets and the kubelets are called by hand, so that a test says what happens.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelineserve_operator.cluster import ApiError, Kind, kind_of
from pipelineserve_operator.cluster.access import FIELD_OWNER
from pipelineserve_operator.moments import text_of
from pipelineserve_operator.render import JsonObject

Place = tuple[Kind, str, str]


@dataclass
class ClusterInMemory:
    """Objects by kind, namespace and name; every write is noted in `writes`."""

    now_s: float = 1_800_000_000.0
    objects: dict[Place, JsonObject] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    num_requests: int = 0
    kinds: frozenset[Kind] = frozenset()
    fail: Callable[[str], None] = lambda _: None
    _number: int = 0

    async def get(self, kind: Kind, namespace: str, name: str) -> JsonObject | None:
        """A copy."""
        self._ask(f"get {kind.kind} {name}")
        return copy.deepcopy(self.objects.get((kind, namespace, name)))

    async def find(
        self,
        kind: Kind,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[JsonObject]:
        """Copies, in the order in which they were made."""
        self._ask(f"list {kind.kind}")
        found = (one for place, one in self.objects.items() if place[:2] == (kind, namespace))
        return [
            copy.deepcopy(one)
            for one in found
            if _has(one, labels or {}) and _is(one, fields or {})
        ]

    async def apply(self, document: JsonObject) -> JsonObject:
        """Put it in place of what was applied before."""
        self._write(f"apply {_named(document)}", document)
        place = _place(document)
        old = self.objects.get(place, {})
        live = {**copy.deepcopy(document), **{k: old[k] for k in ("status",) if k in old}}
        live["metadata"] = self._stored(document, old)
        self.objects[place] = live
        return copy.deepcopy(live)

    async def apply_status(self, document: JsonObject) -> JsonObject:
        """Put it in place of the status."""
        self._write(f"status {_named(document)}", document)
        live = self.objects[_place(document)]
        live["status"] = copy.deepcopy(document["status"])
        self._number += 1
        live["metadata"]["resourceVersion"] = str(self._number)
        return copy.deepcopy(live)

    async def create(self, document: JsonObject) -> bool:
        """Unless the name is taken."""
        self._write(f"create {_named(document)}", document)
        place = _place(document)
        if place in self.objects:
            return False
        self.objects[place] = {**copy.deepcopy(document), "metadata": self._stored(document, {})}
        return True

    async def lacks(self, document: JsonObject) -> bool:
        """Whether the name is free."""
        self._ask(f"try to create {_named(document)}")
        return _place(document) not in self.objects

    async def replace(self, document: JsonObject) -> JsonObject:
        """If nobody was faster."""
        self._write(f"replace {_named(document)}", document)
        place = _place(document)
        old = self.objects[place]
        if old["metadata"]["resourceVersion"] != document["metadata"]["resourceVersion"]:
            raise ApiError("replace", 409, "changed since")
        self.objects[place] = {**copy.deepcopy(document), "metadata": self._stored(document, old)}
        return copy.deepcopy(self.objects[place])

    async def merge(self, kind: Kind, namespace: str, name: str, changes: JsonObject) -> JsonObject:
        """The fields at the top of the document and of its metadata."""
        self._write(f"merge {kind.kind} {name}", changes)
        place = (kind, namespace, name)
        if place not in self.objects:
            raise ApiError("merge", 404, "not found")
        live = self.objects[place]
        metadata = changes.get("metadata", {})
        version = live["metadata"]["resourceVersion"]
        if metadata.get("resourceVersion", version) != version:
            raise ApiError("merge", 409, "changed meanwhile")
        self._number += 1
        fresh = {**live["metadata"], **metadata, "resourceVersion": str(self._number)}
        live.update({**copy.deepcopy(changes), "metadata": fresh})
        return copy.deepcopy(live)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str | None = None) -> None:
        """Nothing depends on it here."""
        self._write(f"delete {kind.kind} {name}", {})
        live = self.objects.get((kind, namespace, name))
        if live is not None and uid in {None, live["metadata"]["uid"]}:
            del self.objects[kind, namespace, name]

    async def knows(self, kind: Kind) -> bool:
        """What the test says."""
        self._ask(f"discover {kind.kind}")
        return kind in self.kinds

    def put(self, document: JsonObject) -> JsonObject:
        """Somebody else's object, or edit of one."""
        place = _place(document)
        old = self.objects.get(place, {})
        live = copy.deepcopy(document)
        live["metadata"] = {
            **self._stored(document, old),
            "managedFields": old.get("metadata", {}).get("managedFields", []),
        }
        self.objects[place] = live
        return live

    def of_kind(self, kind: Kind) -> list[JsonObject]:
        """All objects of a kind, by name."""
        found = [(place[2], one) for place, one in self.objects.items() if place[0] is kind]
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def run_controllers(self) -> None:
        """What Kubernetes' own controllers do: sets have their pods, and nothing else has."""
        wanted: dict[str, JsonObject] = {}
        for one in self.of_kind(Kind.STATEFUL_SET):
            made = {pod["metadata"]["name"]: pod for pod in _pods_of(one)}
            wanted |= made
            one["status"] = {"replicas": len(made)}
        for place in [place for place in self.objects if place[0] is Kind.POD]:
            pod = self.objects[place]
            if place[2] not in wanted and "deletionTimestamp" not in pod["metadata"]:
                pod["metadata"]["deletionTimestamp"] = text_of(self.now_s + 30)
        for name, pod in wanted.items():
            if (Kind.POD, pod["metadata"]["namespace"], name) not in self.objects:
                self.put(pod)

    def end_pods(self) -> None:
        """Pods that were asked to end are gone."""
        for place, one in list(self.objects.items()):
            if place[0] is Kind.POD and "deletionTimestamp" in one["metadata"]:
                del self.objects[place]

    def ready_pods(self, *, which: Callable[[JsonObject], bool] = lambda _: True) -> None:
        """Kubelets say that these pods are ready."""
        for pod in self.of_kind(Kind.POD):
            if which(pod) and "deletionTimestamp" not in pod["metadata"]:
                set_ready(pod, is_ready=True, now_s=self.now_s)

    def _stored(self, document: JsonObject, old: JsonObject) -> JsonObject:
        self._number += 1
        kept = old.get("metadata", {})
        return {
            "uid": f"uid-{self._number}",
            "creationTimestamp": text_of(self.now_s),
            **{key: kept[key] for key in ("uid", "creationTimestamp") if key in kept},
            **{
                key: value
                for key, value in document["metadata"].items()
                if key != "uid" or not kept
            },
            "resourceVersion": str(self._number),
            "managedFields": [_entry(document)],
        }

    def _ask(self, what: str) -> None:
        self.num_requests += 1
        self.fail(what)

    def _write(self, what: str, document: JsonObject) -> None:
        del document
        self._ask(what)
        self.writes.append(what)


def set_ready(pod: JsonObject, *, is_ready: bool, now_s: float) -> None:
    """What a kubelet writes of a pod whose containers are all (not) ready."""
    condition = {
        "type": "Ready",
        "status": str(is_ready),
        "lastTransitionTime": text_of(now_s),
    }
    pod["status"] = {
        "phase": "Running",
        "conditions": [condition],
        "containerStatuses": [
            {"name": one["name"], "ready": is_ready, "restartCount": 0, "state": {"running": {}}}
            for one in pod["spec"]["containers"]
        ],
    }


def _pods_of(one: JsonObject) -> Iterator[JsonObject]:
    metadata, spec = one["metadata"], one["spec"]
    for ordinal in range(spec["ordinals"]["start"], spec["ordinals"]["start"] + spec["replicas"]):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{metadata['name']}-{ordinal}",
                "namespace": metadata["namespace"],
                "labels": dict(spec["template"]["metadata"]["labels"]),
            },
            "spec": copy.deepcopy(spec["template"]["spec"]),
        }


def _entry(document: JsonObject) -> JsonObject:
    bare = {key: value for key, value in document.items() if key not in {"apiVersion", "kind"}}
    metadata = {k: v for k, v in bare["metadata"].items() if k in {"labels", "annotations"}}
    fields = {**bare, "metadata": metadata}
    return {"manager": FIELD_OWNER, "operation": "Apply", "fieldsV1": _fields(fields)}


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    return {f"f:{key}": _fields(inner) for key, inner in value.items()}


def _place(document: JsonObject) -> Place:
    metadata = document["metadata"]
    return kind_of(document), metadata["namespace"], metadata["name"]


def _named(document: JsonObject) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


def _has(one: JsonObject, wanted: Mapping[str, str]) -> bool:
    return bool(wanted.items() <= one["metadata"].get("labels", {}).items())


def _is(one: JsonObject, wanted: Mapping[str, str]) -> bool:
    return all(_field(one, path) == value for path, value in wanted.items())


def _field(one: JsonObject, path: str) -> Any:
    value: Any = one
    for name in path.split("."):
        value = value.get(name, {})
    return value
