"""The CustomResourceDefinition from the resource's types: one structural schema, written as YAML.

Pydantic's JSON schema has references, nulls and closed objects, none of which a structural schema
may have. Rules between fields become CEL, at the field that they are about.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from pipelineserve.api.custom_resource import API_VERSION, KIND, PipelineServe
from pipelineserve.api.rules import RULES, Rule
from pipelineserve.api.spec import PipelineServeSpec
from pipelineserve.api.status import PipelineServeStatus

Schema = dict[str, Any]

GROUP, _, VERSION = API_VERSION.partition("/")
PLURAL = "pipelineserves"
NAME = f"{PLURAL}.{GROUP}"
MAX_NAME_CHARACTERS = 40

_HEADER = "# Written by `make generate` from core/pipelineserve/api.\n"
# What pydantic writes and a structural schema must not have.
_DROPPED = frozenset({"title", "$defs", "additionalProperties", "examples", "discriminator"})
_MAX_INT32 = 2**31 - 1
# The API server keeps bounds as floating-point numbers.
_MAX_EXACT = 2**53


class _PlainDumper(yaml.SafeDumper):
    """Writes what occurs twice twice: Kubernetes reads no anchors in a client's patch."""

    def ignore_aliases(self, data: object) -> bool:
        """Always."""
        del data
        return True


def crd_text() -> str:
    """The definition as YAML."""
    return _HEADER + yaml.dump(crd(), Dumper=_PlainDumper, sort_keys=False, width=120)


def crd() -> Schema:
    """The definition as a document."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": "pipelineserve",
                "shortNames": ["pserve"],
                "categories": ["pipelineserve"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": _root()},
                }
            ],
        },
    }


def _columns() -> list[Schema]:
    def column(name: str, path: str, **more: object) -> Schema:
        return {"name": name, "type": "string", "jsonPath": path, **more}

    ready = '.status.conditions[?(@.type=="Ready")]'
    control = '.status.conditions[?(@.type=="ControlEffective")]'
    return [
        column("Ready", f"{ready}.status"),
        column("Replicas", ".status.summary.replicas"),
        {"name": "Stages", "type": "integer", "jsonPath": ".spec.parallelism.stages"},
        column("TTFT", ".status.summary.ttft"),
        column("TPOT", ".status.summary.tpot"),
        column("SLO", ".status.summary.slo"),
        column("Mode", ".status.mode"),
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        column("Reason", f"{ready}.reason", priority=1),
        column("Control", f"{control}.reason", priority=1),
        column("Endpoint", ".status.endpoint", priority=1),
    ]


def _root() -> Schema:
    spec = _structural(PipelineServeSpec.model_json_schema())
    spec["description"] = PipelineServe.model_fields["spec"].description or ""
    _add_rules(spec)
    status = _structural(PipelineServeStatus.model_json_schema())
    return {
        "type": "object",
        "description": (PipelineServe.__doc__ or "").partition(";")[0] + ".",
        "required": ["spec"],
        "properties": {
            # Kubernetes' own, said again for whoever reads the schema alone.
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            # That no operator has looked at it yet is then seen at once.
            "status": {**status, "default": _first_status()},
        },
        "x-kubernetes-validations": [
            {
                "rule": f"size(self.metadata.name) <= {MAX_NAME_CHARACTERS} && "
                "!self.metadata.name.contains('.')",
                "message": f"metadata.name: expected a DNS label of at most {MAX_NAME_CHARACTERS} "
                "characters, since names of pods are made from it; choose a shorter one",
            }
        ],
    }


def _first_status() -> Schema:
    moment = "1970-01-01T00:00:00Z"
    return {
        "conditions": [
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "Pending",
                "message": "no operator has seen this resource yet",
                "lastTransitionTime": moment,
            }
        ]
    }


def _structural(document: Mapping[str, Any]) -> Schema:
    return _node(document, document.get("$defs", {}))


def _node(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """A node without references, nulls and closed objects."""
    merged = _resolved(node, definitions)
    if merged.get("x-kubernetes-int-or-string"):
        return _int_or_string(merged)
    kept = {key: value for key, value in merged.items() if key not in _DROPPED}
    if "properties" in merged:
        kept["properties"] = {
            name: _node(child, definitions) for name, child in merged["properties"].items()
        }
    elif isinstance(merged.get("additionalProperties"), Mapping):
        kept["additionalProperties"] = _node(merged["additionalProperties"], definitions)
    if "items" in merged:
        kept["items"] = _node(merged["items"], definitions)
    if kept.get("type") == "integer":
        if kept.get("maximum", 0) > _MAX_EXACT:
            del kept["maximum"]
        kept["format"] = "int32" if kept.get("maximum", _MAX_INT32 + 1) <= _MAX_INT32 else "int64"
    if kept.get("x-kubernetes-preserve-unknown-fields"):
        kept.pop("additionalProperties", None)
    _simplify_default(kept)
    return kept


def _resolved(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """A node with what it refers to in its place; what it says itself stands above that."""
    found = dict(node)
    if "anyOf" in found and not found.get("x-kubernetes-int-or-string"):
        alternatives = [one for one in found.pop("anyOf") if one.get("type") != "null"]
        if len(alternatives) != 1:
            raise ValueError(f"expected one type or none, got {alternatives}")
        found = {**_resolved(alternatives[0], definitions), **found}
    if "$ref" in found:
        name = found.pop("$ref").rpartition("/")[2]
        found = {**_resolved(definitions[name], definitions), **found}
    return found


def _int_or_string(node: Schema) -> Schema:
    """The only union that a structural schema may have, in the only shape."""
    kept: Schema = {key: node[key] for key in ("description", "pattern") if key in node}
    return {
        **kept,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": node["maxLength"],
        "x-kubernetes-int-or-string": True,
    }


def _simplify_default(node: Schema) -> None:
    """Objects get a default of their own, or the defaults below would not come into being."""
    given = node.get("default")
    default = _without_empty(given)
    if default is None and isinstance(given, Mapping) and "properties" in node:
        default = {}
    if default is None:
        node.pop("default", None)
    else:
        node["default"] = default


def _without_empty(value: Any) -> Any:
    """A default without what says nothing; the rules of an object are checked on it as it is."""
    if not isinstance(value, Mapping):
        return None if value == [] else value
    kept = {name: _without_empty(entry) for name, entry in value.items()}
    return {name: entry for name, entry in kept.items() if entry is not None} or None


def _add_rules(spec: Schema) -> None:
    for rule in RULES:
        node = spec
        for name in _path_of(rule):
            node = node["items"] if name == "[*]" else node["properties"][name]
        if rule.is_list_key:
            # The API server keeps them unique by itself, and appliers can own single entries.
            entries = node["properties"][rule.needs[0]]
            entries["x-kubernetes-list-type"] = "map"
            entries["x-kubernetes-list-map-keys"] = ["name"]
            continue
        validation = {"rule": rule.cel, "message": _message(rule)}
        node.setdefault("x-kubernetes-validations", []).append(validation)


def _path_of(rule: Rule) -> Iterator[str]:
    for part in rule.scope.split(".")[1:]:
        name, star, _ = part.partition("[*]")
        yield name
        if star:
            yield "[*]"


def _message(rule: Rule) -> str:
    field = rule.reported_at or rule.scope.rpartition(".")[2]
    return f"{field}: {rule.message}"
