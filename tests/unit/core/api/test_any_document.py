"""Whatever is thrown at the door, it answers with a resource or with InvalidInputError."""

import copy
import json
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.api import (
    PipelineServe,
    parse_resource,
    parse_resources,
    resource_from_document,
)
from pipelineserve.errors import InvalidInputError

TEXT = st.text(max_size=12)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT
)  # NaN and infinities included
JSON_LIKE = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def valid_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Resources that break no rule, most groups of fields drawn or left out."""
    stages = draw(st.integers(1, 8))
    spec: dict[str, Any] = {
        "model": {"uri": draw(st.sampled_from(["hf://a/b", "pypi://a/b.gguf", "hf://c"]))},
        "parallelism": {"stages": stages, "stagesPerPod": draw(st.sampled_from([1, stages]))},
        "slo": {
            draw(st.sampled_from(["ttft", "tpot"])): {"milliseconds": draw(st.integers(1, 999))}
        },
    }
    optional: dict[str, st.SearchStrategy[Any]] = {
        "replicas": st.integers(0, 9),
        "engine": st.fixed_dictionaries(
            {"type": st.sampled_from(["Torch", "SGLang"])},
            optional={
                "args": st.lists(TEXT, max_size=3),
                "env": st.lists(
                    st.fixed_dictionaries(
                        {"name": st.from_regex(r"[A-Z]{1,8}", fullmatch=True), "value": TEXT}
                    ),
                    unique_by=lambda entry: entry["name"],
                    max_size=3,
                ),
            },
        ),
        "chunking": st.fixed_dictionaries(
            {"policy": st.sampled_from(["Static", "Greedy", "Predictive"])},
            optional={
                "minTokens": st.integers(1, 64),
                "staticTokens": st.integers(64, 128),
                "maxTokens": st.integers(128, 4096),
            },
        ),
        "rebalancing": st.fixed_dictionaries({"mode": st.sampled_from(["Off", "Auto"])}),
        "restartTime": st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
        "placement": st.fixed_dictionaries(
            {},
            optional={
                "tolerations": st.lists(
                    st.dictionaries(TEXT, st.none() | TEXT | st.integers(-9, 9), max_size=3),
                    max_size=2,
                ),
                "nodeSelector": st.dictionaries(
                    st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5})?", fullmatch=True),
                    st.from_regex(r"[a-z0-9]{0,5}", fullmatch=True),
                    max_size=2,
                ),
            },
        ),
        "resources": st.fixed_dictionaries(
            {
                "stage": st.fixed_dictionaries(
                    {"limits": st.fixed_dictionaries({"cpu": st.integers(1, 9)})}
                )
            }
        ),
    }
    spec |= draw(st.fixed_dictionaries({}, optional=optional))
    name = draw(st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True))
    return {
        "apiVersion": "pipelineserve.dev/v1alpha1",
        "kind": "PipelineServe",
        "metadata": {"name": name},
        "spec": spec,
    }  # fmt: skip


def refusal(parse: Callable[[Any, str], object], given_input: object) -> InvalidInputError | None:
    """What `parse` raised; None if it took its input. Any other exception fails the test."""
    try:
        parse(given_input, "any")
    except InvalidInputError as error:
        return error
    return None


def assert_read_or_refused(parse: Callable[[Any, str], object], given_input: object) -> None:
    error = refusal(parse, given_input)
    if error is not None:
        assert error.faults
        assert all(len(str(fault)) < 1000 for fault in error.faults)


@given(JSON_LIKE)
def test_any_document_is_read_or_refused(document: object) -> None:
    assert_read_or_refused(resource_from_document, document)
    assert_read_or_refused(parse_resources, json.dumps(document))
    assert_read_or_refused(parse_resources, yaml.safe_dump(document, allow_unicode=True))


@given(st.text(max_size=200) | st.text(alphabet="{}[]&*!:-? \n'\"#|>%@,~ab1\\uUx0d", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert_read_or_refused(parse_resources, text)


@given(valid_documents(), st.data())
def test_any_value_at_any_place_of_a_resource_is_read_or_refused(
    document: dict[str, Any], data: st.DataObject
) -> None:
    spoilt = copy.deepcopy(document)
    place: Any = spoilt
    while True:
        key = data.draw(
            st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place)))
        )
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner and data.draw(st.booleans())):
            break
        place = inner
    place[key] = data.draw(JSON_LIKE)
    assert_read_or_refused(resource_from_document, spoilt)
    assert_read_or_refused(parse_resources, json.dumps(spoilt))


@given(valid_documents())
def test_a_resource_survives_being_written_and_read_again(document: dict[str, Any]) -> None:
    resource = parse_resource(json.dumps(document), "first")
    assert parse_resource(json.dumps(resource.to_document()), "json") == resource
    assert resource_from_document(resource.to_document(), "document") == resource
    assert PipelineServe.model_validate(resource.model_dump()) == resource
