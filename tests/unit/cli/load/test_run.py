"""A run sends its plan at its times, loses no request, and stops when told to."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from load_builders import plan_of
from pipelineserve_cli.load.bodies import BodySettings, Endpoint
from pipelineserve_cli.load.client import ClientSettings, LoadClient
from pipelineserve_cli.load.plan import LoadPlan
from pipelineserve_cli.load.records import FailureKind
from pipelineserve_cli.load.run import LoadRun, RunResult
from scripted_completions import (
    WHOLE_ANSWER,
    Ending,
    Reply,
    ScriptedServer,
    scripted_server,
    text_event,
)

WHOLE = Reply(WHOLE_ANSWER)
HELD = Reply((text_event("a"),), ending=Ending.HOLD)
BODIES = BodySettings("scripted", Endpoint.COMPLETIONS, ignores_eos=False)
FAULTY = [
    Reply((b"{}",), 429), Reply((b"{}",), 500), Reply(ending=Ending.BREAK), Reply((b"data: x\n\n",))
]  # fmt: skip


async def nothing(run: LoadRun, server: ScriptedServer) -> None:
    del run, server


def execute(
    plan: LoadPlan,
    replies: Sequence[Reply],
    meanwhile: Callable[[LoadRun, ScriptedServer], Awaitable[None]] = nothing,
    *,
    drain_s: float = 60.0,
    max_connections: int = 64,
) -> RunResult:
    """Run a plan against these replies; `meanwhile` goes on beside it."""

    async def go() -> RunResult:
        async with scripted_server(lambda number: replies[number % len(replies)]) as server:
            client_settings = ClientSettings(
                server.url, Endpoint.COMPLETIONS.path, max_connections=max_connections
            )
            client = LoadClient(client_settings, time.monotonic)
            run = LoadRun(plan, BODIES, client, drain_s=drain_s, clock=time.monotonic)
            result, _ = await asyncio.gather(run.run(), meanwhile(run, server))
            assert run.counts.num_running == 0
            assert run.counts.num_sent == len(result.records)
            return result

    return asyncio.run(go())


def kinds(result: RunResult) -> list[FailureKind | None]:
    return [None if r.failure is None else r.failure.kind for r in result.records]


def test_no_request_is_sent_before_its_time_and_none_is_lost() -> None:
    result = execute(plan_of([0.0, 0.0, 0.01, 0.05, 0.051]), [WHOLE])
    assert [record.index for record in result.records] == [0, 1, 2, 3, 4]
    assert all(record.lag_s >= 0 for record in result.records)
    assert kinds(result) == [None] * 5
    assert not result.is_interrupted


def test_a_request_is_sent_although_the_one_before_has_no_answer() -> None:
    # The first is held until the drain ends: a closed loop would never send the second.
    result = execute(plan_of([0.0, 0.01]), [HELD, WHOLE], drain_s=0.2)
    assert kinds(result) == [FailureKind.UNDRAINED, None]
    assert result.records[0].output_tokens == 1


@settings(max_examples=10)
@given(st.lists(st.sampled_from([WHOLE, *FAULTY]), min_size=1, max_size=6))
def test_failures_stop_nothing_and_are_all_recorded(replies: list[Reply]) -> None:
    result = execute(plan_of([0.0] * 12), replies)
    assert len(result.records) == 12
    expected = sum(replies[number % len(replies)] is WHOLE for number in range(12))
    assert sum(kind is None for kind in kinds(result)) == expected


def test_an_interrupted_run_sends_no_more_and_waits_for_what_runs() -> None:
    async def interrupt(run: LoadRun, server: ScriptedServer) -> None:
        await server.arrived.wait()
        run.interrupt()

    result = execute(plan_of([0.0, 3600.0]), [WHOLE], interrupt)
    assert kinds(result) == [None]
    assert result.is_interrupted


def test_a_second_interrupt_gives_up_what_runs() -> None:
    async def interrupt(run: LoadRun, server: ScriptedServer) -> None:
        await server.arrived.wait()
        run.interrupt()
        run.interrupt()

    result = execute(plan_of([0.0, 3600.0]), [HELD], interrupt)
    assert kinds(result) == [FailureKind.INTERRUPTED]


def test_waiting_for_a_connection_is_lag_and_not_latency() -> None:
    result = execute(plan_of([0.0] * 3), [HELD], drain_s=0.1, max_connections=1)
    # Two never had a connection, so their sending is when they were given up.
    assert len(result.records) == 3
    assert kinds(result) == [FailureKind.UNDRAINED] * 3
    assert [len(record.chunk_times_s) for record in result.records] == [1, 0, 0]
    assert all(record.sent_s == record.ended_s for record in result.records[1:])
