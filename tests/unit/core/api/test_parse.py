"""Texts of one or several documents become resources, or one error."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pipelineserve.api import parse_resource, parse_resources, resource_from_document
from pipelineserve.api.parse import MAX_FAULTS
from pipelineserve.errors import InvalidInputError

DocumentWith = Callable[[dict[str, Any]], dict[str, Any]]


def faults_of(text: str) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        parse_resources(text, "some.yaml")
    return [str(fault) for fault in caught.value.faults]


def joined(*documents: object) -> str:
    return "\n---\n".join(json.dumps(document) for document in documents)


def test_one_message_names_the_source_and_holds_every_fault(document_with: DocumentWith) -> None:
    text = json.dumps(document_with({"spec.replicas": "1", "spec.parallelism.stages": 0}))
    with pytest.raises(InvalidInputError) as caught:
        parse_resource(text, "some.yaml")
    assert str(caught.value) == (
        "some.yaml is not valid (2 faults):\n"
        "  spec.parallelism.stages: expected at least 1, got the integer 0\n"
        '  spec.replicas: expected an integer, got the string "1"'
    )


def test_faults_of_the_text_and_of_the_fields_come_together(document_with: DocumentWith) -> None:
    text = json.dumps(document_with({"spec.replicas": "1"}))
    text = text.replace('"kind":', '"kind": "PipelineServe", "kind":')
    assert [fault.partition(":")[0] for fault in faults_of(text)] == ["kind", "spec.replicas"]


def test_a_fault_of_the_text_alone_refuses_the_resource(document_with: DocumentWith) -> None:
    text = json.dumps(document_with({})).replace('"name":', '"name": "first", "name":')
    (fault,) = faults_of(text)
    assert fault.startswith("metadata.name: given twice")


def test_reads_several_documents_in_order(document_with: DocumentWith) -> None:
    text = joined(document_with({}), document_with({"metadata.name": "other"}))
    assert [resource.name for resource in parse_resources(text, "x")] == ["small", "other"]


def test_says_which_of_several_documents_a_fault_is_in(document_with: DocumentWith) -> None:
    text = joined(document_with({}), document_with({"spec.replicas": -1}))
    assert faults_of(text) == [
        "document 2 (line 3, column 1): spec.replicas: expected at least 0, got the integer -1"
    ]


def test_a_syntax_error_is_reported_beside_faults_before_it(document_with: DocumentWith) -> None:
    faults = faults_of(joined(document_with({"spec.replicas": -1})) + "\n---\n[1\n")
    assert faults[0].startswith("spec.replicas: expected at least 0")
    assert faults[1].startswith("line 4, column 1: expected YAML")


def test_refuses_documents_of_another_kind_without_judging_their_fields() -> None:
    text = "{apiVersion: v1, kind: Secret, data: {}}"
    assert faults_of(text) == [
        (
            'apiVersion: expected pipelineserve.dev/v1alpha1, got the string "v1"; only resources '
            "of kind PipelineServe are read here"
        ),
        (
            'kind: expected PipelineServe, got the string "Secret"; only resources of kind '
            "PipelineServe are read here"
        ),
    ]


def test_refuses_two_resources_of_one_name(document_with: DocumentWith) -> None:
    (fault,) = faults_of(joined(document_with({}), document_with({})))
    assert fault == "metadata.name: expected each name once, got small again; rename one"


def test_takes_one_name_in_two_namespaces(document_with: DocumentWith) -> None:
    text = joined(document_with({}), document_with({"metadata.namespace": "other"}))
    assert len(parse_resources(text, "x")) == 2


def test_one_resource_means_one(document_with: DocumentWith) -> None:
    text = joined(document_with({}), document_with({"metadata.name": "other"}))
    with pytest.raises(InvalidInputError, match="expected one PipelineServe, got 2"):
        parse_resource(text, "x")


@pytest.mark.parametrize("text", ["", "# only a comment", "---\n---\n"])
def test_refuses_a_text_without_a_document(text: str) -> None:
    (fault,) = faults_of(text)
    assert fault.startswith("expected a PipelineServe, got no document")


def test_refuses_a_document_that_is_no_mapping() -> None:
    (fault,) = faults_of("[1]")
    assert fault == "expected a mapping with apiVersion, kind, metadata and spec, got a list"


def test_reads_back_what_the_api_server_sends(document_with: DocumentWith) -> None:
    document = document_with(
        {
            "metadata.uid": "0b5c",
            "metadata.generation": 7,
            "metadata.resourceVersion": "12",
            "metadata.managedFields": [{"manager": "kubectl"}],
            "metadata.annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "x" * 9000
            },
            "status": {"anything": 1},
        }
    )
    metadata = resource_from_document(document, "api").metadata
    assert (metadata.uid, metadata.generation) == ("0b5c", 7)


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), "\ud800", b"bytes"])
def test_refuses_a_document_that_json_cannot_say(
    document_with: DocumentWith, value: object
) -> None:
    with pytest.raises(InvalidInputError, match="expected a JSON document"):
        resource_from_document(document_with({"spec.placement.affinity": {"a": value}}), "x")


def test_bounds_the_number_of_faults_shown(document_with: DocumentWith) -> None:
    faults = faults_of(json.dumps(document_with({f"spec.x{i}": 1 for i in range(250)})))
    assert len(faults) == MAX_FAULTS + 1
    assert faults[-1] == "and 150 more; repair these first"
