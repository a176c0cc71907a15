"""A stage that is killed or stands still costs its clients time, never a token."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from api_server import RunningApi
from engine_server import NAME, PATIENCE_S, EngineServer, all_have_ended, wait_until
from pipelineserve import metrics
from served_model import ServedModel

pytestmark = pytest.mark.anyio

NUM_TOKENS = 300
# Greedy, and sampled with a seed; with and without penalties, which look at what came before.
REQUESTS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 1.0, "seed": 5},
    {"temperature": 1.3, "top_p": 0.9, "seed": 6},
    {"temperature": 1.0, "seed": 7, "presence_penalty": 1.0, "frequency_penalty": 0.3},
)


@asynccontextmanager
async def serving(
    model: ServedModel, *flags: str
) -> AsyncIterator[tuple[EngineServer, RunningApi]]:
    with EngineServer(model.folder, "--stages=2", "--static-chunk-tokens=32", *flags) as server:
        await asyncio.to_thread(server.wait_serving)
        api = RunningApi(server.port)
        try:
            yield server, api
        finally:
            await api.close()


async def ask_all(api: RunningApi) -> list[str]:
    return await asyncio.gather(*(ask(api, fields) for fields in REQUESTS))


async def ask(api: RunningApi, fields: dict[str, Any], num_tokens: int = NUM_TOKENS) -> str:
    stream = await api.client.completions.create(
        model=NAME, prompt="once upon a time", max_tokens=num_tokens, stream=True, **fields
    )
    return "".join([piece.choices[0].text async for piece in stream])


async def some_tokens(server: EngineServer, num_more: int) -> None:
    """Return when so many tokens more were sampled."""
    before = server.metrics().value(metrics.OUTPUT_TOKENS)
    await asyncio.to_thread(
        server.wait_metrics, lambda now: now.value(metrics.OUTPUT_TOKENS) >= before + num_more
    )


def read(server: EngineServer, path: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", timeout=PATIENCE_S)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_streams_go_on_with_the_text_that_they_would_have_had(
    served_model: ServedModel, number: signal.Signals, victim: int
) -> None:
    async with serving(served_model) as (server, api):
        undisturbed = await ask_all(api)
        before = server.running_stages()
        streams = asyncio.create_task(ask_all(api))
        await some_tokens(server, 100)
        os.kill(before[victim], number)
        assert await streams == undisturbed
        samples = server.metrics()
        assert samples.value(metrics.RECOVERIES) == 1
        ended = [samples.value(metrics.REQUESTS, outcome=outcome) for outcome in ("stop", "length")]
        assert sum(ended) == 2 * len(REQUESTS)
        assert samples.count(metrics.TTFT) == 2 * len(REQUESTS)
        assert await asyncio.to_thread(all_have_ended, before)
        assert len(server.running_stages()) == 2


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (signal.SIGKILL, "stage 1 ended with signal 9"),
        (signal.SIGSTOP, "stage 1 was silent for"),
    ],
)
async def test_meanwhile_it_is_live_but_not_ready_takes_requests_and_lets_them_go(
    served_model: ServedModel, number: signal.Signals, cause: str
) -> None:
    async with serving(served_model) as (server, api):
        expected = await ask(api, REQUESTS[0], 20)
        doomed = asyncio.create_task(ask(api, REQUESTS[0], 1500))
        await some_tokens(server, 20)
        os.kill(server.running_stages()[1], number)
        detail = await asyncio.to_thread(
            wait_until, lambda: read(server, "/ready"), lambda answer: answer.is_error
        )
        assert cause in detail.json()["detail"]
        assert (await asyncio.to_thread(read, server, "/health")).is_success
        late = asyncio.create_task(ask(api, REQUESTS[0], 20))
        doomed.cancel()
        assert await late == expected
        assert (await asyncio.to_thread(read, server, "/ready")).is_success
        samples = await asyncio.to_thread(
            server.wait_metrics, lambda now: now.value(metrics.REQUESTS_RUNNING) == 0
        )
        assert samples.value(metrics.REQUESTS, outcome="cancelled") == 1


async def test_stages_killed_again_while_they_load_are_started_again(
    served_model: ServedModel,
) -> None:
    async with serving(served_model) as (server, api):
        undisturbed = await ask_all(api)
        first = server.running_stages()
        streams = asyncio.create_task(ask_all(api))
        await some_tokens(server, 100)
        os.kill(first[0], signal.SIGKILL)
        second = await asyncio.to_thread(
            wait_until,
            server.running_stages,
            lambda pids: len(pids) == 2 and not set(pids) & set(first),
        )
        os.kill(second[1], signal.SIGKILL)
        assert await streams == undisturbed
        assert server.metrics().value(metrics.RECOVERIES) == 2


async def test_a_killed_nursery_costs_time_only_and_another_takes_its_place(
    served_model: ServedModel,
) -> None:
    async with serving(served_model) as (server, api):
        undisturbed = await ask_all(api)
        before, nursery = server.live_pids(), server.nursery_pid
        streams = asyncio.create_task(ask_all(api))
        await some_tokens(server, 100)
        os.kill(nursery, signal.SIGKILL)
        assert await streams == undisturbed
        assert server.metrics().value(metrics.RECOVERIES) == 1
        assert "lost its nursery, which ended with signal 9 (SIGKILL" in server.log
        others = set(before) - {server.pid}
        assert await asyncio.to_thread(all_have_ended, sorted(others))
        assert len(server.live_pids()) == len(before)
        # The new one starts stages as the old one did.
        stages = server.running_stages()
        streams = asyncio.create_task(ask_all(api))
        await some_tokens(server, 100)
        os.kill(stages[1], signal.SIGKILL)
        assert await streams == undisturbed
        assert server.metrics().value(metrics.RECOVERIES) == 2


async def test_a_nursery_that_stands_still_is_replaced_when_a_stage_must_be(
    served_model: ServedModel,
) -> None:
    async with serving(served_model) as (server, api):
        undisturbed = await ask_all(api)
        before, stages = server.live_pids(), server.running_stages()
        os.kill(server.nursery_pid, signal.SIGSTOP)
        streams = asyncio.create_task(ask_all(api))
        await some_tokens(server, 100)
        os.kill(stages[0], signal.SIGKILL)
        assert await streams == undisturbed
        assert server.metrics().value(metrics.RECOVERIES) == 1
        others = set(before) - {server.pid}
        assert await asyncio.to_thread(all_have_ended, sorted(others))
        assert len(server.live_pids()) == len(before)


async def test_the_failure_beyond_the_budget_ends_every_request_and_the_server_with_the_reason(
    served_model: ServedModel,
) -> None:
    async with serving(served_model, "--recovery-max-restarts=1") as (server, api):
        stream = asyncio.create_task(ask(api, REQUESTS[0], 1800))
        await some_tokens(server, 50)
        os.kill(server.running_stages()[0], signal.SIGKILL)
        await asyncio.to_thread(server.wait_for_line, "stages are ready again")
        await some_tokens(server, 50)
        os.kill(server.running_stages()[0], signal.SIGKILL)
        with pytest.raises(openai.APIError, match="gave up: recovery_budget_spent"):
            await stream
        assert await asyncio.to_thread(server.wait) == 1
        assert server.live_pids() == ()
        assert server.leftovers() == []
