"""Events are counted rather than repeated, and nobody is flooded."""

import asyncio

from cluster_in_memory import ClusterInMemory
from pipelineserve_operator.cluster import ApiError, Kind
from pipelineserve_operator.events import EventReason, Recorder, Told

RESOURCE = {
    "apiVersion": "pipelineserve.dev/v1alpha1",
    "kind": "PipelineServe",
    "metadata": {"name": "small", "namespace": "models", "uid": "u"},
}
STARTED = Told(EventReason.GROUP_STARTED, "replica 0 starts: Rollout")


class Telling:
    """A recorder, and what it wrote."""

    def __init__(self) -> None:
        self.cluster = ClusterInMemory()
        self.restart()

    def restart(self) -> None:
        """Nothing is remembered."""
        self.recorder = Recorder(self.cluster, lambda: self.cluster.now_s)

    def tell(self, told: Told = STARTED) -> None:
        """Of the resource."""
        asyncio.run(self.recorder.tell(RESOURCE, told))

    def counts(self) -> dict[str, int]:
        """By message."""
        return {one["message"]: one["count"] for one in self.cluster.of_kind(Kind.EVENT)}


def test_the_same_thing_told_again_is_counted() -> None:
    telling = Telling()
    for _ in range(3):
        telling.tell()
    assert telling.counts() == {STARTED.message: 3}


def test_counting_goes_on_after_a_restart() -> None:
    telling = Telling()
    telling.tell()
    telling.restart()
    telling.tell()
    assert telling.counts() == {STARTED.message: 2}


def test_another_thing_is_another_event() -> None:
    telling = Telling()
    telling.tell()
    telling.tell(Told(EventReason.STALLED, "InvalidSpec"))
    assert len(telling.counts()) == 2
    types = {one["reason"]: one["type"] for one in telling.cluster.of_kind(Kind.EVENT)}
    assert types == {"GroupStarted": "Normal", "Stalled": "Warning"}


def test_an_event_that_kubernetes_has_forgotten_is_written_anew() -> None:
    telling = Telling()
    telling.tell()
    telling.tell()
    telling.cluster.objects.clear()
    telling.tell()
    assert telling.counts() == {STARTED.message: 1}
    telling.tell()
    assert telling.counts() == {STARTED.message: 2}


def test_a_flood_is_cut_off_and_counted() -> None:
    telling = Telling()
    for number in range(25):
        telling.tell(Told(EventReason.REPAIRED, f"Service {number}"))
    assert len(telling.counts()) == 10
    assert telling.recorder.num_dropped == 15
    telling.cluster.now_s += 30
    telling.tell(Told(EventReason.REPAIRED, "later"))
    assert "later" in telling.counts()


def test_an_event_that_cannot_be_written_stops_nobody() -> None:
    telling = Telling()

    def refuse(what: str) -> None:
        raise ApiError(what, 403, "forbidden")

    telling.cluster.fail = refuse
    telling.tell()
    assert telling.recorder.num_dropped == 1
