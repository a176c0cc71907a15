"""Carries a plan out, one object after the other, and stops at the first that cannot be."""

import base64
from collections.abc import Callable

from pipelineserve.api import KIND
from pipelineserve_operator.cluster import ApiError, Cluster, NameTakenError, kind_of
from pipelineserve_operator.observed import is_owned
from pipelineserve_operator.plan.planning import Deletion, Plan, Write
from pipelineserve_operator.render import JsonObject, Subject

_KEY_BYTES = 32
_KEY = "key"
_NOT_CHANGED = frozenset({"apiVersion", "kind", "metadata"})


class LeftoverError(NameTakenError):
    """The object that has the name belonged to a resource that is gone; it will go too."""


class Applier:
    """Writes what a plan says.

    Args:
        random_bytes: as many unguessable bytes as asked for.
        may_write: whether this process is still the one to write.
    """

    def __init__(
        self,
        cluster: Cluster,
        random_bytes: Callable[[int], bytes],
        may_write: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._random_bytes = random_bytes
        self._may_write = may_write
        self.num_writes = 0

    async def apply(self, plan: Plan, subject: Subject) -> None:
        """Carry out all of it.

        Raises:
            ApiError: the API server refuses, or does not answer.
            NameTakenError: an object that is not ours has a name that we need.
            InterruptedError: another process has become the one to write.
        """
        for deletion in plan.unreadable:
            await self._delete(deletion, subject)
        for write in plan.shared:
            await self._write(write, subject)
        for secret in plan.key_secrets:
            await self._make_key(secret)
        for write in plan.sets:
            await self._write(write, subject)
        for deletion in plan.deletions:
            await self._delete(deletion, subject)

    async def _write(self, write: Write, subject: Subject) -> None:
        if write.is_new:
            await self._check_name(write.document, subject)
        self._count()
        try:
            await self._cluster.apply(write.document)
        except ApiError as error:
            if write.is_new or not error.is_invalid:
                raise
            await self._take_back(write.document)

    async def _take_back(self, wanted: JsonObject) -> None:
        """Somebody's own elements in a list of ours contradict ours, and applying leaves them."""
        metadata = wanted["metadata"]
        changes = {key: value for key, value in wanted.items() if key not in _NOT_CHANGED}
        self._count()
        await self._cluster.merge(kind_of(wanted), metadata["namespace"], metadata["name"], changes)
        await self._cluster.apply(wanted)

    async def _check_name(self, wanted: JsonObject, subject: Subject) -> None:
        """Applying would make somebody else's object ours in part."""
        name = wanted["metadata"]["name"]
        there = await self._cluster.get(kind_of(wanted), subject.namespace, name)
        if there is None or is_owned(there, subject.uid):
            return
        what = f"{wanted['kind']} {name}"
        raise LeftoverError(what) if _is_leftover(there, subject) else NameTakenError(what)

    async def _make_key(self, secret: JsonObject) -> None:
        """Once: members that run would not know another key."""
        self._count()
        key = base64.b64encode(self._random_bytes(_KEY_BYTES)).decode()
        await self._cluster.create({**secret, "data": {_KEY: key}})

    async def _delete(self, deletion: Deletion, subject: Subject) -> None:
        self._count()
        await self._cluster.delete(deletion.kind, subject.namespace, deletion.name, deletion.uid)

    def _count(self) -> None:
        if not self._may_write():
            raise InterruptedError("the lease was lost; whoever has it goes on")
        self.num_writes += 1


def _is_leftover(there: JsonObject, subject: Subject) -> bool:
    owners = there["metadata"].get("ownerReferences", ())
    return any(one["kind"] == KIND and one["name"] == subject.name for one in owners)
