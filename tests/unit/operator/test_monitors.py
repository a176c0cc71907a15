"""Kinds for monitoring that come or go while the operator runs are seen without a restart."""

import asyncio

from cluster_in_memory import ClusterInMemory
from pipelineserve_operator.cluster import ApiError, Kind
from pipelineserve_operator.monitors import Monitors
from sidecar_parts import running, until

BOTH = frozenset({Kind.POD_MONITOR, Kind.PROMETHEUS_RULE})


def test_only_kinds_that_the_cluster_knows_count() -> None:
    monitors = Monitors(ClusterInMemory(kinds=frozenset({Kind.PROMETHEUS_RULE})))
    assert set(monitors.kinds) == set()
    assert asyncio.run(monitors.look())
    assert set(monitors.kinds) == {Kind.PROMETHEUS_RULE}
    assert not asyncio.run(monitors.look()), "nothing has changed since"


def test_kinds_that_come_later_and_go_again_are_told_each_time() -> None:
    cluster, told = ClusterInMemory(), list[tuple[Kind, ...]]()
    monitors = Monitors(cluster, period_s=0.001)

    async def scenario() -> None:
        async with running(monitors.run(lambda: told.append(monitors.kinds))):
            await until(lambda: cluster.num_requests > 4, "looks that find nothing")
            assert told == []
            cluster.kinds = BOTH
            await until(lambda: len(told) == 1, "the word that they have come")
            cluster.kinds = frozenset()
            await until(lambda: len(told) == 2, "the word that they have gone")

    asyncio.run(scenario())
    assert told == [(Kind.POD_MONITOR, Kind.PROMETHEUS_RULE), ()]


def test_what_was_known_holds_while_the_api_server_is_away() -> None:
    cluster, told = ClusterInMemory(kinds=BOTH), list[str]()
    monitors = Monitors(cluster, period_s=0.001)
    num_failed = 0

    def fail(what: str) -> None:
        nonlocal num_failed
        num_failed += 1
        raise ApiError(what, 0, "no route to host")

    async def scenario() -> None:
        await monitors.look()
        cluster.fail = fail
        async with running(monitors.run(lambda: told.append("changed"))):
            await until(lambda: num_failed > 3, "looks that fail")

    asyncio.run(scenario())
    assert frozenset(monitors.kinds) == BOTH
    assert told == []
