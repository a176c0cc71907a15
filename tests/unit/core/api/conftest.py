"""A resource that is valid by default, with changes by path."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from pipelineserve.api import PipelineServe, resource_from_document
from pipelineserve.errors import InvalidInputError

MINIMAL: dict[str, Any] = {
    "apiVersion": "pipelineserve.dev/v1alpha1",
    "kind": "PipelineServe",
    "metadata": {"name": "small"},
    "spec": {
        "model": {"uri": "hf://org/model"},
        "parallelism": {"stages": 4},
        "slo": {"ttft": {"milliseconds": 2000}},
    },
}


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The minimal document with the value at each dotted path set; `...` removes the field."""
    document = copy.deepcopy(MINIMAL)
    for path, value in changes.items():
        *parents, leaf = path.split(".")
        mapping = document
        for parent in parents:
            mapping = mapping.setdefault(parent, {})
        if value is ...:
            del mapping[leaf]
        else:
            mapping[leaf] = value
    return document


@pytest.fixture
def document_with() -> Callable[[dict[str, Any]], dict[str, Any]]:
    return changed


@pytest.fixture
def resource_with() -> Callable[[dict[str, Any]], PipelineServe]:
    return lambda changes: resource_from_document(changed(changes), "test")


@pytest.fixture
def faults_with() -> Callable[[dict[str, Any]], list[str]]:
    """Every fault of the changed document, as text; none when it is valid."""

    def faults(changes: dict[str, Any]) -> list[str]:
        try:
            resource_from_document(changed(changes), "test")
        except InvalidInputError as error:
            return [str(fault) for fault in error.faults]
        return []

    return faults
