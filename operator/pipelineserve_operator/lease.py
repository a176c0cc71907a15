"""One operator at a time: a Lease that the others wait for.

Whether a holder is still there is judged by how long its Lease has not changed on our own
monotonic clock: clocks of different machines are never compared.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pipelineserve_operator.cluster import ApiError, Cluster, Kind
from pipelineserve_operator.moments import text_with_microseconds
from pipelineserve_operator.render import JsonObject

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How a Lease is held.

    Attributes:
        duration_s: a Lease that has not changed for so long is free.
        renew_s: how often the holder renews, and the others look.
        deadline_s: a holder that could not renew for so long stops work; well before others begin.
    """

    duration_s: float = 15.0
    renew_s: float = 3.0
    deadline_s: float = 9.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """A version of the Lease, and since when it has been the latest on our clock."""

    version: str
    since_s: float


class Move(Enum):
    """What to do about the Lease now."""

    CREATE = "create"
    RENEW = "renew"
    TAKE = "take"
    WAIT = "wait"


def next_move(
    lease: JsonObject | None, identity: str, sighting: Sighting | None, now_s: float
) -> Move:
    """What to do about the Lease as it is; `sighting` is of this very version."""
    if lease is None:
        return Move.CREATE
    spec = lease.get("spec", {})
    holder = spec.get("holderIdentity") or ""
    if holder == identity:
        return Move.RENEW
    if not holder:
        return Move.TAKE
    duration_s = float(spec.get("leaseDurationSeconds") or 0)
    is_silent = sighting is not None and now_s - sighting.since_s >= duration_s
    return Move.TAKE if is_silent else Move.WAIT


class Leadership:
    """Holds the Lease, or waits for it; `held` is set while this process is the one to work.

    Args:
        identity: of this process among all that want the Lease.
        clock: monotonic seconds.
        wall_clock: seconds since 1970, for people who read the Lease.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        times: LeaseTimes | None = None,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._wall_clock = wall_clock
        self._times = times or LeaseTimes()
        self._sighting: Sighting | None = None
        self._renewed_s: float | None = None
        self._said_holder = ""
        self.held = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled; the Lease is then free for the next one."""
        try:
            while True:
                await self._attempt()
                await asyncio.sleep(self._times.renew_s)
        finally:
            await self._release()

    async def look(self) -> None:
        """Look at the Lease once, and do what is to be done.

        Raises:
            ApiError: the API server refuses, does not answer, or somebody was faster.
        """
        lease = await self._cluster.get(Kind.LEASE, self._namespace, self._name)
        self._see(lease)
        began_s = self._clock()
        match next_move(lease, self._identity, self._sighting, began_s):
            case Move.CREATE:
                self._held_since(began_s, await self._cluster.create(self._document(None)))
            case Move.RENEW | Move.TAKE:
                await self._cluster.replace(self._document(lease))
                self._held_since(began_s, is_held=True)
            case Move.WAIT:
                self._held_since(began_s, is_held=False)
                self._say_holder(lease)

    async def _attempt(self) -> None:
        try:
            async with asyncio.timeout(self._times.deadline_s):
                await self.look()
        except (ApiError, TimeoutError) as error:
            logger.warning("lease not reached", extra={"error": str(error) or "no answer in time"})
        since_s = self._renewed_s
        if since_s is None or self._clock() - since_s > self._times.deadline_s:
            self._stop()

    def _held_since(self, began_s: float, is_held: bool) -> None:  # by name above
        if not is_held:
            self._renewed_s = None
            self._stop()
            return
        self._renewed_s = began_s
        if not self.held.is_set():
            logger.info("lease acquired", extra={"identity": self._identity})
            self.held.set()

    def _stop(self) -> None:
        if self.held.is_set():
            logger.warning("lease lost", extra={"identity": self._identity})
            self.held.clear()

    def _see(self, lease: JsonObject | None) -> None:
        version = "" if lease is None else lease["metadata"]["resourceVersion"]
        if self._sighting is None or self._sighting.version != version:
            self._sighting = Sighting(version, self._clock())

    def _say_holder(self, lease: JsonObject | None) -> None:
        holder = str((lease or {}).get("spec", {}).get("holderIdentity"))
        if holder != self._said_holder:
            self._said_holder = holder
            logger.info("waiting for the lease", extra={"holder": holder})

    def _document(self, lease: JsonObject | None) -> JsonObject:
        now = text_with_microseconds(self._wall_clock())
        old: dict[str, Any] = {} if lease is None else lease.get("spec", {})
        is_ours = old.get("holderIdentity") == self._identity
        num_changes = int(old.get("leaseTransitions") or 0)
        metadata: JsonObject = {"name": self._name, "namespace": self._namespace}
        if lease is not None:
            metadata = lease["metadata"]
        return {
            "apiVersion": Kind.LEASE.api_version,
            "kind": Kind.LEASE.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(self._times.duration_s),
                "acquireTime": old.get("acquireTime", now) if is_ours else now,
                "renewTime": now,
                "leaseTransitions": num_changes if is_ours or not old else num_changes + 1,
            },
        }

    async def _release(self) -> None:
        """Free at once what would be free after its duration anyway."""
        was_held = self.held.is_set()
        self._stop()
        if not was_held:
            return
        try:
            lease = await self._cluster.get(Kind.LEASE, self._namespace, self._name)
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                document = self._document(lease)
                del document["spec"]["holderIdentity"]
                await self._cluster.replace(document)
        except ApiError as error:
            logger.info("lease not released", extra={"error": str(error)})
