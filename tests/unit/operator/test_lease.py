"""One operator works at a time; the others wait, by their own clocks."""

import asyncio
from typing import Any

import pytest

from cluster_in_memory import ClusterInMemory
from pipelineserve_operator.cluster import ApiError, Kind
from pipelineserve_operator.lease import Leadership, LeaseTimes, Move, Sighting, next_move

TIMES = LeaseTimes(duration_s=15.0, renew_s=3.0, deadline_s=9.0)


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now_s


class Two:
    """Two operators that want the same Lease, each with a clock of its own."""

    def __init__(self) -> None:
        self.cluster = ClusterInMemory()
        self.clocks = {name: Clock() for name in ("a", "b")}
        # Wall clocks that are far apart must not matter.
        self.members = {
            name: Leadership(
                self.cluster,
                "models",
                "lease",
                name,
                clock=self.clocks[name],
                wall_clock=lambda name=name: 0.0 if name == "a" else 1e9,  # type: ignore[misc]
                times=TIMES,
            )
            for name in ("a", "b")
        }

    def look(self, name: str) -> bool:
        """Whether it has the Lease then."""
        asyncio.run(self.members[name].look())
        return self.members[name].held.is_set()

    def attempt(self, name: str) -> bool:
        """The same with what `run` makes of errors."""
        asyncio.run(self.members[name]._attempt())
        return self.members[name].held.is_set()

    @property
    def spec(self) -> Any:
        """Of the Lease."""
        return self.cluster.objects[Kind.LEASE, "models", "lease"]["spec"]


def test_the_first_one_has_it_and_the_second_one_waits() -> None:
    two = Two()
    assert two.look("a")
    assert not two.look("b")
    assert two.spec["holderIdentity"] == "a"


def test_a_holder_that_renews_keeps_it_for_ever() -> None:
    two = Two()
    two.look("a")
    for _ in range(20):
        two.clocks["b"].now_s += 14.0
        assert two.look("a")
        assert not two.look("b")


def test_a_holder_that_falls_silent_loses_it_after_its_duration_on_our_clock() -> None:
    two = Two()
    two.look("a")
    assert not two.look("b")
    two.clocks["b"].now_s = 14.9
    assert not two.look("b")
    two.clocks["b"].now_s = 15.0
    assert two.look("b")
    assert two.spec["leaseTransitions"] == 1
    assert not two.look("a")


def test_a_holder_that_cannot_renew_stops_before_others_begin() -> None:
    two = Two()
    assert two.attempt("a")

    def away(what: str) -> None:
        raise ApiError(what, 0, "no route")

    two.cluster.fail = away
    two.clocks["a"].now_s = 8.0
    assert two.attempt("a")
    two.clocks["a"].now_s = 9.1
    assert not two.attempt("a")
    assert TIMES.deadline_s < TIMES.duration_s


def test_an_end_frees_it_at_once() -> None:
    two = Two()
    two.look("a")

    async def end() -> None:
        running = asyncio.create_task(two.members["a"].run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(end())
    assert "holderIdentity" not in two.spec
    assert two.look("b")


def test_whoever_was_slower_does_not_have_it() -> None:
    two = Two()
    two.look("a")
    two.look("b")
    two.clocks["b"].now_s = 20.0
    lease = two.cluster.objects[Kind.LEASE, "models", "lease"]
    original = two.cluster.replace

    async def slower(document: Any) -> Any:
        lease["metadata"]["resourceVersion"] = "changed"
        return await original(document)

    two.cluster.replace = slower  # type: ignore[method-assign]
    with pytest.raises(ApiError):
        two.look("b")
    assert not two.members["b"].held.is_set()


@pytest.mark.parametrize(
    ("spec", "seen_s", "move"),
    [
        ({}, 0.0, Move.TAKE),
        ({"holderIdentity": "me"}, 0.0, Move.RENEW),
        ({"holderIdentity": "other", "leaseDurationSeconds": 15}, 0.0, Move.WAIT),
        ({"holderIdentity": "other", "leaseDurationSeconds": 15}, -15.0, Move.TAKE),
    ],
)
def test_what_to_do_about_a_lease(spec: dict[str, Any], seen_s: float, move: Move) -> None:
    assert next_move({"spec": spec}, "me", Sighting("1", seen_s), 0.0) is move
