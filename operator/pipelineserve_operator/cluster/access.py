"""What the operator asks of an API server."""

from collections.abc import Mapping
from typing import Protocol

from pipelineserve_operator.cluster.kinds import Kind
from pipelineserve_operator.render import JsonObject

FIELD_OWNER = "pipelineserve-operator"
"""Who the API server takes for the owner of the fields that we set."""


class Cluster(Protocol):
    """An API server. Every method raises `ApiError` when it refuses, or does not answer."""

    async def get(self, kind: Kind, namespace: str, name: str) -> JsonObject | None:
        """One object; None if it is not there."""

    async def find(
        self,
        kind: Kind,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[JsonObject]:
        """All objects of a namespace, or of all for "", that have these labels and fields."""

    async def apply(self, document: JsonObject) -> JsonObject:
        """Server-side apply, fields of others taken over; what the server made of it."""

    async def apply_status(self, document: JsonObject) -> JsonObject:
        """The same for the status alone."""

    async def create(self, document: JsonObject) -> bool:
        """Create an object; False if one of its name is there already."""

    async def lacks(self, document: JsonObject) -> bool:
        """Whether no object has this one's name; nothing is made, and nothing of it is read."""

    async def replace(self, document: JsonObject) -> JsonObject:
        """Put an object in place of the version of it that `metadata.resourceVersion` names."""

    async def merge(self, kind: Kind, namespace: str, name: str, changes: JsonObject) -> JsonObject:
        """Change these fields of an object, whoever owns them."""

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str | None = None) -> None:
        """Delete an object unless it is gone already; with `uid`, only the one that has it."""

    async def knows(self, kind: Kind) -> bool:
        """Whether the cluster has this kind."""
