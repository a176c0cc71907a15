"""The CustomResourceDefinition holds what an API server and its users need."""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from tools.crd import crd, crd_text

from pipelineserve.api.rules import RULES

VERSION: dict[str, Any] = crd()["spec"]["versions"][0]
ROOT_SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]
SPEC: dict[str, Any] = ROOT_SCHEMA["properties"]["spec"]
STATUS: dict[str, Any] = ROOT_SCHEMA["properties"]["status"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of a schema with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[*]")


def test_it_is_small_enough_for_a_client_side_apply() -> None:
    assert len(crd_text()) < 200_000


def test_the_text_is_plain_yaml_of_the_document() -> None:
    assert yaml.safe_load(crd_text()) == crd()
    assert not re.search(r"[&*]id\d", crd_text())


def test_nothing_is_in_it_that_a_structural_schema_may_not_have() -> None:
    forbidden = {"$ref", "$defs", "title", "const", "oneOf", "allOf", "not", "examples"}
    found = [path for path, node in nodes(ROOT_SCHEMA) if forbidden & set(node)]
    closed = [
        path for path, node in nodes(ROOT_SCHEMA) if node.get("additionalProperties") is False
    ]
    assert (found, closed) == ([], [])
    unions = [node for _, node in nodes(ROOT_SCHEMA) if "anyOf" in node]
    assert all(node["x-kubernetes-int-or-string"] for node in unions)


def test_every_text_list_and_map_is_bounded() -> None:
    bounds = {"string": "maxLength", "array": "maxItems"}
    unbounded = [
        path
        for schema in (SPEC, STATUS)
        for path, node in nodes(schema)
        if (kind := node.get("type")) in bounds and bounds[kind] not in node and "enum" not in node
    ]
    maps = [
        path
        for path, node in nodes(SPEC)
        if "additionalProperties" in node and "maxProperties" not in node
    ]
    assert (unbounded, maps) == ([], [])


def test_every_field_of_the_spec_says_what_an_edit_of_it_does() -> None:
    effects = ("Live: ", "Rolls: ", "Immutable: ", "Live or Rolls: ")
    silent = [
        path
        for path, node in nodes(SPEC)
        if not path.endswith("[*]") and not node.get("description", "").startswith(effects)
    ]
    assert silent == []


def test_every_rule_between_fields_is_in_it() -> None:
    validations = [
        validation
        for _, node in nodes(SPEC)
        for validation in node.get("x-kubernetes-validations", [])
    ]
    messages = " ".join(validation["message"] for validation in validations)
    for rule in RULES:
        assert rule.is_list_key or rule.message in messages
    assert len(validations) == sum(not rule.is_list_key for rule in RULES)


def test_an_object_whose_fields_have_defaults_has_one_itself() -> None:
    """A default below an object that is not there never comes into being."""
    lacking = [
        path
        for path, node in nodes(SPEC)
        if any("default" in child for child in node.get("properties", {}).values())
        and "default" not in node
        and path not in ("", ".model", ".parallelism", ".slo", ".slo.ttft", ".slo.tpot")
        and path != ".autoscaling"
    ]
    assert lacking == []


def test_it_has_what_kubectl_and_autoscalers_need() -> None:
    columns = [column["name"] for column in VERSION["additionalPrinterColumns"]]
    assert columns[:8] == ["Ready", "Replicas", "Stages", "TTFT", "TPOT", "SLO", "Mode", "Age"]
    assert set(VERSION["subresources"]) == {"status", "scale"}
    assert crd()["spec"]["names"]["shortNames"] == ["pserve"]
