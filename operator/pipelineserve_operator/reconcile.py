"""One look at a resource: read, plan, apply, say how things stand.

A look reads everything anew, so it does not matter which event it came of. Two things are looked at
without reading: what sidecars say, for they speak every few seconds and objects tell of their own
changes; and a resource that has changed by nothing but the status that we have written.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from pipelineserve.api import PipelineServeSpec, resource_from_document
from pipelineserve.errors import InvalidInputError, PipelineServeError
from pipelineserve_operator.applying import Applier, LeftoverError
from pipelineserve_operator.cluster import ApiError, Cluster, Kind, NameTakenError
from pipelineserve_operator.conditions.situation import Blocked, BlockReason, Situation
from pipelineserve_operator.conditions.statuses import Said, document_of, is_said, status_of
from pipelineserve_operator.events import Recorder, Told
from pipelineserve_operator.findings import ResourceReport
from pipelineserve_operator.link import Link, Offered
from pipelineserve_operator.observed import View
from pipelineserve_operator.plan.planning import Plan, plan_for
from pipelineserve_operator.plan.replicas import ReplicaSeen, replicas_seen
from pipelineserve_operator.reading import read_missing_claims, read_refusals, read_view
from pipelineserve_operator.render import (
    JsonObject,
    OperatorSettings,
    Subject,
    live_sections_text,
    names,
    subject_of,
)
from pipelineserve_operator.telling import told_of_plan, told_of_status

logger = logging.getLogger(__name__)

# Of what nothing tells: Events about pods, claims that come.
_LOOK_WHILE_WAITING_S = 15.0
_LOOK_FOR_LEFTOVERS_S = 2.0
_SOON_S = 0.05


class Key(NamedTuple):
    """A resource's place."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.namespace}/{self.name}"


class BlockedError(PipelineServeError):
    """A look that ended before all was done; the status says why, and it is tried again."""


class Sidecars(Protocol):
    """What the controllers of a resource say."""

    def report(self, uid: str, spec: PipelineServeSpec) -> ResourceReport | None:
        """Of all replicas together, times in seconds since 1970; None if none are listened to."""


@dataclass(frozen=True, slots=True)
class Around:
    """All that a look needs beside the resource.

    Attributes:
        settings: for rendering.
        monitors: kinds for monitoring that the cluster knows.
        clock: seconds since 1970.
        resync_s: how long until a resource is read again although nothing has happened.
    """

    cluster: Cluster
    applier: Applier
    recorder: Recorder
    link: Link
    sidecars: Sidecars
    settings: Callable[[], OperatorSettings]
    monitors: Callable[[], Iterable[Kind]]
    clock: Callable[[], float]
    resync_s: Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a look leaves behind so that a word of a sidecar costs no reading.

    Attributes:
        situation: without objects.
        version: of the resource, up to which everything is known.
        due_s: when everything is to be read again.
        figures_s: when figures were last written.
    """

    situation: Situation
    version: str
    due_s: float
    figures_s: float | None


class Reconciler:
    """Looks at resources; `look` is for a work queue."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._memories: dict[Key, _Memory] = {}
        self._keys: dict[str, Key] = {}
        self._changed: set[Key] = set()
        self._versions: dict[Key, str] = {}

    @property
    def num_resources(self) -> int:
        """Resources that are there."""
        return len(self._keys)

    @property
    def keys(self) -> tuple[Key, ...]:
        """Of all resources that are there."""
        return tuple(self._keys.values())

    def key_of(self, uid: str) -> Key | None:
        """Where the resource with this uid is; None if it was never seen."""
        return self._keys.get(uid)

    def touch(self, key: Key) -> None:
        """Something about the resource or its children has changed: read everything."""
        self._changed.add(key)

    def hear_of(self, resource: JsonObject) -> None:
        """The resource has become so: read everything, unless that is known already.

        Its sidecars are told of its targets at once, for looks may stand in line.
        """
        metadata = resource["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        self._versions[key] = metadata["resourceVersion"]
        memory = self._memories.get(key)
        if memory is None or metadata["generation"] <= memory.situation.generation:
            return
        try:
            subject = subject_of(resource_from_document(resource, str(key)))
        except InvalidInputError:
            return  # the look that follows says so
        # Of another uid, it is a resource that these pods are not of.
        if memory.situation.subject is not None and memory.situation.subject.uid == subject.uid:
            self._around.link.offer(_offered(subject, memory.situation.view))

    async def look(self, key: Key) -> float | None:
        """Bring one resource forward; seconds until the next look, None if it is gone.

        Raises:
            ApiError: the API server does not answer, or answers strangely.
            BlockedError: something stands in the way; the status says what.
        """
        now_s = self._around.clock()
        memory = self._memories.get(key)
        must_read = (
            memory is None
            or key in self._changed
            or now_s >= memory.due_s
            or self._versions.get(key, memory.version) != memory.version
        )
        # Before anything is read: what changes meanwhile is read again.
        self._changed.discard(key)
        self._versions.pop(key, None)
        try:
            if memory is None or must_read:
                return await self._read(key, now_s)
            return await self._hear(key, memory, now_s)
        except BaseException:
            self._changed.add(key)
            raise

    async def _read(self, key: Key, now_s: float) -> float | None:
        around = self._around
        resource = await around.cluster.get(Kind.PIPELINE_SERVE, key.namespace, key.name)
        if resource is None or resource["metadata"].get("deletionTimestamp"):
            self._forget(key)
            return None
        self._remember_uid(key, resource["metadata"]["uid"])
        view = await read_view(around.cluster, resource, around.monitors(), now_s)
        subject, plan, blocked = self._planned(view, now_s)
        if subject is not None:
            around.link.offer(_offered(subject, view))
        if plan is not None:
            blocked = await self._apply(plan, subject, view) or blocked
        situation = await self._situation(view, subject, plan, blocked, now_s)
        return await self._conclude(key, situation, now_s)

    def _planned(
        self, view: View, now_s: float
    ) -> tuple[Subject | None, Plan | None, Blocked | None]:
        source = f"PipelineServe {view.resource['metadata']['name']}"
        try:
            subject = subject_of(resource_from_document(view.resource, source))
        except InvalidInputError as error:
            return None, None, Blocked(BlockReason.INVALID_SPEC, str(error))
        plan = plan_for(view, subject, self._around.settings(), now_s)
        if plan.refusal is None:
            return subject, plan, None
        return subject, plan, Blocked(BlockReason.INVALID_SPEC, str(plan.refusal))

    async def _apply(self, plan: Plan, subject: Subject | None, view: View) -> Blocked | None:
        if subject is None or plan.is_empty:
            return None
        try:
            await self._around.applier.apply(plan, subject)
        except LeftoverError as error:
            return Blocked(BlockReason.LEFTOVERS, str(error))
        except NameTakenError as error:
            return Blocked(BlockReason.NAME_TAKEN, str(error))
        except ApiError as error:
            if not error.is_refusal:
                raise
            return Blocked(BlockReason.REFUSED, str(error))
        await self._tell(view.resource, told_of_plan(plan, view.resource))
        return None

    async def _situation(
        self,
        view: View,
        subject: Subject | None,
        plan: Plan | None,
        blocked: Blocked | None,
        now_s: float,
    ) -> Situation:
        replicas = plan.replicas if plan is not None else replicas_seen(view, 0)
        if subject is not None and any(_is_amiss(one) for one in replicas):
            view = await self._explained(view, subject)
        metadata = view.resource["metadata"]
        return Situation(
            view=view,
            generation=metadata["generation"],
            subject=subject,
            replicas=replicas,
            plan=plan,
            blocked=blocked,
            report=self._report(subject),
            now_s=now_s,
        )

    async def _explained(self, view: View, subject: Subject) -> View:
        cluster = self._around.cluster
        refusals, claims = await asyncio.gather(
            read_refusals(cluster, view, subject.namespace),
            read_missing_claims(cluster, subject.spec, subject.namespace),
        )
        return replace(view, refusals=refusals, missing_claims=claims)

    async def _conclude(self, key: Key, situation: Situation, now_s: float) -> float | None:
        """Say how things stand; when to look again."""
        memory = self._memories.get(key)
        figures_s = memory.figures_s if memory is not None else None
        said, resource, figures_s = await self._say(situation, figures_s, now_s)
        plan = situation.plan
        moments_s = [now_s + self._around.resync_s()]
        if plan is not None and plan.steps.look_again_s is not None:
            moments_s.append(plan.steps.look_again_s)
        if situation.waiting():
            moments_s.append(now_s + _LOOK_WHILE_WAITING_S)
        due_s = min(moments_s)
        lean = replace(situation, view=_lean(situation.view, resource), plan=_lean_plan(plan))
        self._memories[key] = _Memory(lean, _version(resource), due_s, figures_s)
        if situation.blocked is not None:
            self._changed.add(key)
            if not situation.blocked.reason.passes:
                raise BlockedError(situation.blocked.message)
            return _LOOK_FOR_LEFTOVERS_S
        return _pause_s(due_s, said, situation, now_s)

    async def _hear(self, key: Key, memory: _Memory, now_s: float) -> float:
        """Only what sidecars say may have changed."""
        situation = replace(
            memory.situation, report=self._report(memory.situation.subject), now_s=now_s
        )
        said, resource, figures_s = await self._say(situation, memory.figures_s, now_s)
        lean = replace(situation, view=_lean(situation.view, resource))
        self._memories[key] = _Memory(lean, _version(resource), memory.due_s, figures_s)
        return _pause_s(memory.due_s, said, situation, now_s)

    async def _say(
        self, situation: Situation, figures_s: float | None, now_s: float
    ) -> tuple[Said, JsonObject, float | None]:
        """Write the status if it differs; what it says, the resource then, when figures were."""
        said = status_of(situation, figures_s)
        resource = situation.view.resource
        document = document_of(said.status, resource)
        if is_said(document, resource):
            return said, resource, figures_s
        old_slo = (resource.get("status") or {}).get("slo")
        if document["status"].get("slo") != old_slo:
            figures_s = now_s
        written = await self._around.cluster.apply_status(document)
        await self._tell(resource, told_of_status(said.status, resource))
        return said, _with_status(resource, written), figures_s

    async def _tell(self, resource: JsonObject, every: Iterable[Told]) -> None:
        for told in every:
            await self._around.recorder.tell(resource, told)

    def _report(self, subject: Subject | None) -> ResourceReport | None:
        if subject is None:
            return None
        return self._around.sidecars.report(subject.uid, subject.spec)

    def _remember_uid(self, key: Key, uid: str) -> None:
        if uid in self._keys:
            return
        gone = [old for old, place in self._keys.items() if place == key]
        for old in gone:
            del self._keys[old]
            self._around.link.withdraw(old)
        self._keys[uid] = key

    def _forget(self, key: Key) -> None:
        self._memories.pop(key, None)
        self._versions.pop(key, None)
        for uid in [uid for uid, place in self._keys.items() if place == key]:
            del self._keys[uid]
            self._around.link.withdraw(uid)


def _offered(subject: Subject, view: View) -> Offered:
    return Offered(
        uid=subject.uid,
        namespace=subject.namespace,
        name=subject.name,
        generation=subject.generation,
        spec_json=live_sections_text(subject.spec),
        service_account=names.members(subject.name),
        pod_uids=frozenset(pod.uid for pod in view.pods),
    )


def _version(resource: JsonObject) -> str:
    version: str = resource["metadata"]["resourceVersion"]
    return version


def _with_status(resource: JsonObject, written: JsonObject) -> JsonObject:
    """The resource of the look with the status that was written.

    If anything else has changed meanwhile, its version stays that of the look: then the version
    that is heard of is another one, and everything is read.
    """
    old, new = resource["metadata"], written["metadata"]
    if {**_lasting(new), "resourceVersion": ""} == {**_lasting(old), "resourceVersion": ""}:
        old = {**old, "resourceVersion": new["resourceVersion"]}
    return {**resource, "metadata": old, "status": written.get("status")}


def _lasting(metadata: JsonObject) -> JsonObject:
    return {name: value for name, value in metadata.items() if name != "managedFields"}


def _is_amiss(replica: ReplicaSeen) -> bool:
    return replica.newest is None or not replica.newest.is_whole


def _lean(view: View, resource: JsonObject) -> View:
    """Without what only a plan needs."""
    return View(
        {**resource, "metadata": _lasting(resource["metadata"]), "spec": {}},
        {},
        view.pods,
        view.refusals,
        view.missing_claims,
    )


def _lean_plan(plan: Plan | None) -> Plan | None:
    if plan is None:
        return None
    return replace(plan, unreadable=(), shared=(), key_secrets=(), sets=(), deletions=())


def _pause_s(due_s: float, said: Said, situation: Situation, now_s: float) -> float:
    moments_s = [due_s]
    if said.look_again_s is not None:
        moments_s.append(said.look_again_s)
    report = situation.report
    if report is not None and report.look_again_at_s is not None:
        moments_s.append(report.look_again_at_s)
    return max(_SOON_S, min(moments_s) - now_s)
