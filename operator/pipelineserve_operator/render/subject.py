"""The resource that is rendered, with all that only a stored one has."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from pipelineserve.api import API_VERSION, KIND, PipelineServe, PipelineServeSpec
from pipelineserve.errors import Fault, InvalidInputError

JsonObject: TypeAlias = dict[str, Any]
"""An object of Kubernetes, or a part of one, as plain JSON."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One resource of a namespace.

    Attributes:
        uid: given by the API server; what is rendered belongs to it.
        generation: of the spec; it tells an older word of the targets from a newer one.
    """

    name: str
    namespace: str
    uid: str
    generation: int
    served_name: str
    spec: PipelineServeSpec

    @property
    def owner_reference(self) -> JsonObject:
        """Makes an object disappear with the resource."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def subject_of(resource: PipelineServe) -> Subject:
    """What is rendered of a resource that an API server has stored.

    Raises:
        InvalidInputError: namespace, uid or generation is missing.
    """
    metadata = resource.metadata
    missing = [
        Fault(f"metadata.{name}", "required, but missing; take the resource from the API server")
        for name in ("namespace", "uid", "generation")
        if getattr(metadata, name) is None
    ]
    if missing or metadata.namespace is None or metadata.uid is None or metadata.generation is None:
        raise InvalidInputError(f"PipelineServe {metadata.name}", missing)
    return Subject(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        generation=metadata.generation,
        served_name=resource.served_name,
        spec=resource.spec,
    )
