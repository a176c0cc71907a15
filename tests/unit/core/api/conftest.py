"""A resource that is valid by default, with changes by path."""

from collections.abc import Callable
from typing import Any

import pytest

from pipelineserve.api import PipelineServe, resource_from_document
from pipelineserve.errors import InvalidInputError
from resource_documents import changed


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
