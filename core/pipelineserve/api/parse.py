"""The door: text or documents to resources, or one error with every fault found."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from pipelineserve.api.custom_resource import API_VERSION, KIND, PipelineServe
from pipelineserve.api.documents import Document, read_documents
from pipelineserve.api.faults import described, explain
from pipelineserve.api.rules import broken_rules
from pipelineserve.api.spec import CONTRADICTION
from pipelineserve.errors import Fault, InvalidInputError

MAX_FAULTS = 100
_HEADER_ADVICE = f"only resources of kind {KIND} are read here"
# Written by the API server, so that the output of `kubectl get -o yaml` can be read back.
_SERVER_METADATA = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
    }
)


def parse_resource(text: str, source: str) -> PipelineServe:
    """The one resource in `text` (YAML or JSON); `source` names the text in errors.

    Raises:
        InvalidInputError: with every fault found.
    """
    resources = parse_resources(text, source)
    if len(resources) > 1:
        message = f"expected one {KIND}, got {len(resources)}; keep one in this file"
        raise InvalidInputError(source, [Fault("", message)])
    return resources[0]


def parse_resources(text: str, source: str) -> tuple[PipelineServe, ...]:
    """Every resource in `text`, at least one, in the order of its documents.

    Raises:
        InvalidInputError: with every fault found; a document of another kind is a fault.
    """
    read = read_documents(text)
    checked = [_checked(document.value, document.faults) for document in read.documents]
    faults: list[Fault] = []
    for index, (document, (_, found)) in enumerate(zip(read.documents, checked, strict=True)):
        faults += found if len(checked) == 1 else _placed(found, index, document)
    faults += read.faults
    resources = tuple(resource for resource, _ in checked if resource)
    if not checked and not faults:
        faults.append(Fault("", f"expected a {KIND}, got no document; see examples/"))
    if not faults:
        faults += _repeated_names(resources)
    if faults:
        raise InvalidInputError(source, _bounded(faults))
    return resources


def resource_from_document(document: object, source: str) -> PipelineServe:
    """The resource that a JSON document, as the API server sends it, describes.

    Raises:
        InvalidInputError: with every fault found.
    """
    resource, faults = _checked(document, ())
    if resource is None:
        raise InvalidInputError(source, _bounded(faults))
    return resource


def _checked(
    document: object, earlier: Iterable[Fault]
) -> tuple[PipelineServe | None, tuple[Fault, ...]]:
    """The resource if its fields are valid, and all faults with the `earlier` ones first."""
    earlier = tuple(earlier)
    if not isinstance(document, Mapping):
        expected = "expected a mapping with apiVersion, kind, metadata and spec"
        return None, (*earlier, Fault("", f"{expected}, got {described(document)}"))
    faults = _header_faults(document)
    if faults:
        return None, (*earlier, *faults)
    own = _without_server_fields(document)
    try:
        text = json.dumps(own, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        message = f"expected a JSON document ({error}); write plain values"
        return None, (*earlier, Fault("", message))
    resource, faults = _validated(text, earlier)
    return resource, (*earlier, *faults)


def _validated(
    text: bytes, earlier: tuple[Fault, ...]
) -> tuple[PipelineServe | None, tuple[Fault, ...]]:
    try:
        return _read(text), ()
    except ValidationError as error:
        document = _without_nulls(json.loads(text), error)
    try:
        return _read(json.dumps(document, ensure_ascii=False).encode()), ()
    except ValidationError as error:
        explanation = explain(error, PipelineServe, ignored=CONTRADICTION)
    malformed = explanation.malformed | {fault.field for fault in earlier}
    return None, (*explanation.faults, *broken_rules(document, malformed))


def _read(text: bytes) -> PipelineServe:
    return PipelineServe.model_validate_json(text, by_alias=True, by_name=False)


def _without_nulls(document: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """The document less the fields that are null and may not be.

    An API server drops these before it puts in defaults, unless it knows no such field.
    """
    for details in error.errors(include_url=False):
        *parents, name = details["loc"]
        if details["input"] is not None or details["type"] == "extra_forbidden":
            continue
        place: Any = document
        for parent in parents:
            place = place[parent]
        if isinstance(place, dict) and name in place:
            del place[name]
    return document


def _header_faults(document: Mapping[str, Any]) -> tuple[Fault, ...]:
    """Another kind or version has other fields, so that nothing else can be said about it."""
    return tuple(
        Fault(name, f"expected {expected}, got {described(document.get(name))}; {_HEADER_ADVICE}")
        for name, expected in (("apiVersion", API_VERSION), ("kind", KIND))
        if document.get(name) != expected
    )


def _without_server_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in document.items() if key != "status"}
    metadata = own.get("metadata")
    if isinstance(metadata, Mapping):
        own["metadata"] = {
            key: value for key, value in metadata.items() if key not in _SERVER_METADATA
        }
    return own


def _placed(faults: Iterable[Fault], index: int, document: Document) -> list[Fault]:
    place = f"document {index + 1} ({document.place})"
    return [
        Fault(f"{place}: {fault.field}" if fault.field else place, fault.message)
        for fault in faults
    ]


def _repeated_names(resources: Iterable[PipelineServe]) -> list[Fault]:
    seen: set[tuple[str | None, str]] = set()
    faults = []
    for resource in resources:
        key = (resource.metadata.namespace, resource.name)
        if key in seen:
            message = f"expected each name once, got {resource.name} again; rename one"
            faults.append(Fault("metadata.name", message))
        seen.add(key)
    return faults


def _bounded(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    every = tuple(faults)
    left = len(every) - MAX_FAULTS
    if left <= 0:
        return every
    return (*every[:MAX_FAULTS], Fault("", f"and {left} more; repair these first"))
