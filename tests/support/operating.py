"""A reconciler on a cluster in memory, and a resource to look at."""

import asyncio
import copy
from dataclasses import dataclass, field
from typing import Any

from cluster_in_memory import ClusterInMemory
from pipelineserve.api import PipelineServeSpec
from pipelineserve.policy.control.answers import Answer
from pipelineserve_operator.applying import Applier
from pipelineserve_operator.cluster import Kind
from pipelineserve_operator.events import Recorder
from pipelineserve_operator.findings import Finding, LinkReason, ResourceReport
from pipelineserve_operator.link import Offered, Report
from pipelineserve_operator.reconcile import Around, BlockedError, Key, Reconciler
from pipelineserve_operator.render import JsonObject
from rendering import SETTINGS, UID
from resource_documents import changed, in_spec

NAMESPACE = "models"
KEY = Key(NAMESPACE, "small")
_RESYNC_S = 600.0
# More than any change takes; one that takes more does not end.
_MOST_LOOKS = 30


@dataclass
class Sidecars:
    """A link that keeps what it is told, and says what a test wants said."""

    offered: list[Offered] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    said: ResourceReport | None = None

    def offer(self, offered: Offered) -> None:
        """Kept."""
        self.offered.append(offered)

    def withdraw(self, uid: str) -> None:
        """Kept."""
        self.withdrawn.append(uid)

    def reports(self, uid: str) -> tuple[Report, ...]:
        """None: `report` says it all."""
        del uid
        return ()

    def report(self, uid: str, spec: PipelineServeSpec) -> ResourceReport | None:
        """What the test says."""
        del uid, spec
        return self.said


class Operating:
    """One operator and one resource; `settle` lets both go on until nothing changes."""

    def __init__(self, changes: dict[str, Any] | None = None) -> None:
        self.cluster = ClusterInMemory()
        self.sidecars = Sidecars()
        self.may_write = True
        self.settings = SETTINGS
        self.restart()
        stored = {"metadata.namespace": NAMESPACE, "metadata.uid": UID, "metadata.generation": 1}
        spec = in_spec({"engine.type": "Torch", **(changes or {})})
        self.resource = self.cluster.put(changed({**stored, **spec}))

    def restart(self) -> None:
        """Another process: nothing of what the first one remembered."""
        applier = Applier(self.cluster, bytes, lambda: self.may_write)
        self.reconciler = Reconciler(
            Around(
                cluster=self.cluster,
                applier=applier,
                recorder=Recorder(self.cluster, lambda: self.cluster.now_s),
                link=self.sidecars,
                sidecars=self.sidecars,
                settings=lambda: self.settings,
                monitors=tuple,
                clock=lambda: self.cluster.now_s,
                resync_s=lambda: _RESYNC_S,
            )
        )

    def edit(self, changes: dict[str, Any]) -> None:
        """The resource's spec, by path."""
        spec = self.resource["spec"]
        for path, value in changes.items():
            *parents, leaf = path.split(".")
            mapping = spec
            for parent in parents:
                mapping = mapping.setdefault(parent, {})
            mapping[leaf] = value
        self.resource["metadata"]["generation"] += 1
        self.resource["metadata"]["resourceVersion"] += "-edited"

    def look(self) -> float | None:
        """Once, everything read anew; when to look again. What blocks is in the status."""
        self.reconciler.touch(KEY)
        try:
            return asyncio.run(self.reconciler.look(KEY))
        except BlockedError:
            return None

    def told(self) -> None:
        """The API server tells of the resource as it is."""
        self.reconciler.hear_of(copy.deepcopy(self.resource))

    def hear(self) -> float | None:
        """Once, only for what sidecars say."""
        return asyncio.run(self.reconciler.look(KEY))

    def settle(self, *, is_ready: bool = True) -> int:
        """Until nothing changes: operator, controllers and kubelets; how many looks it took."""
        for number in range(_MOST_LOOKS):
            before = self.picture()
            self.look()
            self.cluster.run_controllers()
            self.cluster.end_pods()
            if is_ready:
                self.cluster.ready_pods()
            if self.picture() == before:
                return number
        raise AssertionError(f"still changing after {_MOST_LOOKS} looks")

    def picture(self) -> Any:
        """All that a change would show in, events apart."""
        return copy.deepcopy(
            {place: _bare(one) for place, one in self.cluster.objects.items() if _counts(place[0])}
        )

    def condition(self, name: str) -> tuple[str, str, str]:
        """Status, reason and message."""
        conditions = {one["type"]: one for one in self.status["conditions"]}
        found = conditions[name]
        return found["status"], found["reason"], found.get("message", "")

    @property
    def status(self) -> JsonObject:
        """What the resource says."""
        status: JsonObject = self.resource["status"]
        return status

    def names(self, kind: Kind) -> list[str]:
        """Of the objects of a kind."""
        return [one["metadata"]["name"] for one in self.cluster.of_kind(kind)]

    def events(self) -> list[tuple[str, str]]:
        """Reason and message of every event."""
        return [(one["reason"], one["message"]) for one in self.cluster.of_kind(Kind.EVENT)]

    def written(self) -> list[str]:
        """What was written since the last time, events and status apart."""
        writes, self.cluster.writes = self.cluster.writes, []
        return [
            one for one in writes if " Event " not in f" {one} " and not one.startswith("status")
        ]


def a_report(**changes: Any) -> ResourceReport:
    """Of replicas that are all well; changes by name."""
    well = {
        "is_conclusive": True,
        "look_again_at_s": None,
        "ttft_s": 1.5,
        "tpot_s": None,
        "num_requests": 100,
        "num_attained": 97,
        "received_generation": 1,
        "applied_generation": 1,
        "applied": ((0, 1),),
        "reason": "steady",
        "connected": Finding(Answer.YES, LinkReason.ALL_CONNECTED),
        "effective": Finding(Answer.YES, LinkReason.EFFECTIVE),
        "fresh": Finding(Answer.YES, LinkReason.FRESH),
        "slo_met": Finding(Answer.YES, LinkReason.TARGETS_MET),
        "slo_feasible": Finding(Answer.YES, LinkReason.FEASIBLE),
    }
    return ResourceReport(**{**well, **changes})


def _counts(kind: Kind) -> bool:
    return kind is not Kind.EVENT


def _bare(one: JsonObject) -> JsonObject:
    metadata = {k: v for k, v in one["metadata"].items() if k != "resourceVersion"}
    return {**one, "metadata": metadata}
