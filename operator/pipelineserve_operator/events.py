"""Events for people: what repeats is counted, and no object is told of too often.

A message holds no number that changes, so that the same thing is said in the same words.
"""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from pipelineserve_operator.cluster import ApiError, Cluster, Kind
from pipelineserve_operator.cluster.token_bucket import TokenBucket
from pipelineserve_operator.moments import text_of
from pipelineserve_operator.render import JsonObject

logger = logging.getLogger(__name__)

_REPORTER = "pipelineserve-operator"
_BURST = 10.0
_PER_S = 1.0 / 30.0
_MAX_REMEMBERED = 4096
_MAX_MESSAGE = 1000


class EventType(Enum):
    """The two that Kubernetes has."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventReason(Enum):
    """What is told of."""

    GROUP_STARTED = "GroupStarted"
    GROUP_DRAINING = "GroupDraining"
    GROUP_REMOVED = "GroupRemoved"
    REPAIRED = "Repaired"
    READY = "Ready"
    NOT_READY = "NotReady"
    STALLED = "Stalled"
    TARGETS_INFEASIBLE = "TargetsInfeasible"

    @property
    def type(self) -> EventType:
        """How it is to be taken."""
        match self:
            case EventReason.NOT_READY | EventReason.STALLED | EventReason.TARGETS_INFEASIBLE:
                return EventType.WARNING
            case _:
                return EventType.NORMAL


@dataclass(frozen=True, slots=True)
class Told:
    """Something to tell of a resource."""

    reason: EventReason
    message: str


class Recorder:
    """Writes Events; what cannot be written is logged and counted, and stops nobody.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self.num_dropped = 0

    async def tell(self, resource: JsonObject, told: Told) -> None:
        """Write an Event about the resource, or count one up that is there."""
        now_s = self._clock()
        if not self._bucket(resource["metadata"]["uid"]).try_take(now_s):
            self.num_dropped += 1
            return
        try:
            await self._write(resource, told, text_of(now_s))
        except ApiError as error:
            self.num_dropped += 1
            logger.warning("event not written", extra={"error": str(error)})

    async def _write(self, resource: JsonObject, told: Told, moment: str) -> None:
        event = _event(resource, told, moment)
        namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
        if name not in self._counts and await self._cluster.create(event):
            self._remember(name, 1)
            return
        count = await self._count_before(namespace, name) + 1
        changes = {"count": count, "lastTimestamp": moment}
        try:
            await self._cluster.merge(Kind.EVENT, namespace, name, changes)
        except ApiError as error:
            if not error.is_not_found:
                raise
            # Events end after an hour or so; then it begins anew.
            await self._cluster.create(event)
            count = 1
        self._remember(name, count)

    async def _count_before(self, namespace: str, name: str) -> int:
        """As remembered; after a restart, as it was written."""
        if name in self._counts:
            return self._counts[name]
        there = await self._cluster.get(Kind.EVENT, namespace, name)
        return int(there.get("count") or 1) if there is not None else 0

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        self._counts.move_to_end(name)
        if len(self._counts) > _MAX_REMEMBERED:
            self._counts.popitem(last=False)

    def _bucket(self, uid: str) -> TokenBucket:
        bucket = self._buckets.setdefault(uid, TokenBucket(_PER_S, _BURST))
        self._buckets.move_to_end(uid)
        if len(self._buckets) > _MAX_REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket


def _event(resource: JsonObject, told: Told, moment: str) -> JsonObject:
    metadata = resource["metadata"]
    # Its name says what it is about, so that whoever tells the same finds it.
    key = f"{metadata['uid']}/{told.reason.value}/{told.message}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{digest}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": resource["apiVersion"],
            "kind": resource["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": told.reason.type.value,
        "reason": told.reason.value,
        "message": told.message[:_MAX_MESSAGE],
        "source": {"component": _REPORTER},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
