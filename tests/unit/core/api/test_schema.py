"""The types hold what a CRD must say: a bound and the effect of an edit, on every field."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from pipelineserve.api import PipelineServe, PipelineServeSpec

SCHEMA: dict[str, Any] = PipelineServe.model_json_schema()
DEFINITIONS: dict[str, Any] = SCHEMA["$defs"]


def fields() -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Name, schema and whether it is required, of every field of every model."""
    for title, model in {"PipelineServe": SCHEMA, **DEFINITIONS}.items():
        required = model.get("required", [])
        for name, field in model.get("properties", {}).items():
            yield f"{title}.{name}", field, name in required


def unbounded(schema: dict[str, Any], path: str) -> list[str]:
    """Paths within `schema` whose values could be of any size."""
    if "$ref" in schema:
        definition = DEFINITIONS[schema["$ref"].rpartition("/")[2]]
        # A model's own fields are walked by themselves.
        return [] if definition.get("properties") or definition.get("enum") else [path]
    if "anyOf" in schema:
        return [found for part in schema["anyOf"] for found in unbounded(part, path)]
    needed = {
        "integer": {"minimum", "maximum"},
        "string": {"maxLength"},
        "array": {"maxItems"},
        "object": {"maxProperties"},
        "boolean": set(),
        "null": set(),
    }[schema["type"]]
    here = [] if needed <= set(schema) or "const" in schema else [path]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict) and not _passes_through(schema):
            here += unbounded(schema[key], f"{path}.{key}")
    return here


def _passes_through(schema: dict[str, Any]) -> bool:
    """Structures of Kubernetes, whose size as JSON is bounded by a validator."""
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def test_every_field_says_what_an_edit_of_it_does() -> None:
    effects = ("Live: ", "Rolls: ", "Immutable: ", "Live or Rolls: ")
    silent = [
        name
        for name, field, _ in fields()
        if not str(field.get("description", "")).startswith(effects)
    ]
    assert silent == []


def test_every_number_text_list_and_map_is_bounded() -> None:
    assert [path for name, field, _ in fields() for path in unbounded(field, name)] == []


def test_no_field_takes_a_fraction() -> None:
    assert "'number'" not in str(SCHEMA)


def test_every_required_field_has_an_example_for_its_fault() -> None:
    lacking = [name for name, field, required in fields() if required and "examples" not in field]
    assert lacking == []


def test_every_model_refuses_unknown_fields() -> None:
    models = [model for model in (SCHEMA, *DEFINITIONS.values()) if "properties" in model]
    assert len(models) > 20
    assert all(model["additionalProperties"] is False for model in models)


def test_names_of_numbers_carry_their_unit_or_count_something() -> None:
    units = ("Tokens", "Seconds", "Milliseconds", "Percent")
    counts = {
        "stages", "stagesPerPod", "tensorParallel", "replicas", "minReplicas", "maxReplicas",
        "maxSurge", "maxUnavailable", "maxRestarts", "percentile", "generation",
    }  # fmt: skip
    numbers = [
        name.rpartition(".")[2]
        for name, field, _ in fields()
        if any(part.get("type") == "integer" for part in (field, *field.get("anyOf", [])))
        and not name.endswith(("sharedMemory", "sizeLimit"))
    ]
    assert numbers
    odd = [
        name
        for name in numbers
        if name not in counts and not name.endswith(units) and name != "milliseconds"
    ]
    assert odd == []


def test_no_default_of_the_spec_is_a_chunk_size() -> None:
    chunk_sizes = [name for name, _, _ in fields() if name.endswith("Tokens")]
    assert len(chunk_sizes) >= 6
    with_default = [
        name for name, field, _ in fields() if name in chunk_sizes and field["default"] is not None
    ]
    assert with_default == []


def test_names_outside_are_the_camel_case_of_those_inside() -> None:
    groups = [field.annotation for field in PipelineServeSpec.model_fields.values()]
    models = [group for group in groups if isinstance(group, type) and issubclass(group, BaseModel)]
    assert len(models) > 10
    every: list[type[BaseModel]] = [PipelineServe, PipelineServeSpec, *models]
    for model in every:
        for name, field in model.model_fields.items():
            first, *others = name.split("_")
            assert field.alias == first + "".join(word.capitalize() for word in others)
