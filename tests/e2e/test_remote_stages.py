"""Stages under stage hosts at addresses of their own: same tokens, same recovery, no strangers."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api_server import RunningApi
from engine_server import NAME, EngineServer, all_have_ended, has_ended
from free_ports import a_free_port
from pipelineserve import metrics
from served_model import ServedModel
from stage_hosts import RunningStageHost, save_group_key

pytestmark = pytest.mark.anyio

LEADER = "127.0.0.1"
NUM_TOKENS = 300
REQUESTS: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 1.0, "seed": 5})


@dataclass(frozen=True)
class Pipeline:
    """A server with the stage hosts of its stages."""

    server: EngineServer
    api: RunningApi
    hosts: list[RunningStageHost]
    stack: ExitStack
    model: ServedModel
    port: int
    key_file: Path

    def add_host(self, stage_index: int, **changes: Any) -> RunningStageHost:
        """One more stage host; as its stage's own unless something is changed."""
        given: dict[str, Any] = {
            "leader": f"{LEADER}:{self.port}",
            "stage_index": stage_index,
            "model_folder": self.model.folder,
            "address": address_of(stage_index),
            "key_file": self.key_file,
        }
        return self.stack.enter_context(RunningStageHost(**{**given, **changes}))


def address_of(stage_index: int) -> str:
    return f"127.0.0.{stage_index + 1}"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return save_group_key(tmp_path / "group.key")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def leader_flags(addresses: Sequence[str], port: int, key_file: Path) -> list[str]:
    return [
        f"--stages={len(addresses)}",
        f"--stage-addresses={','.join(addresses)}",
        f"--leader-address={LEADER}",
        f"--leader-port={port}",
        f"--group-key-file={key_file}",
        "--static-chunk-tokens=32",
    ]


@asynccontextmanager
async def serving(
    model: ServedModel, key_file: Path, num_stages: int = 2, *, group_epoch: int = 0
) -> AsyncIterator[Pipeline]:
    port = a_free_port()
    addresses = [address_of(index) for index in range(num_stages)]
    with ExitStack() as stack:
        epoch_flag = f"--group-epoch={group_epoch}"
        given = [*leader_flags(addresses, port, key_file), epoch_flag]
        server = stack.enter_context(EngineServer(model.folder, *given))
        pipeline = Pipeline(server, None, [], stack, model, port, key_file)  # type: ignore[arg-type]
        hosts = [pipeline.add_host(index, flags=[epoch_flag]) for index in range(num_stages)]
        await asyncio.to_thread(server.wait_serving)
        api = RunningApi(server.port)
        try:
            yield Pipeline(server, api, hosts, stack, model, port, key_file)
        finally:
            await api.close()


async def ask(api: RunningApi, fields: dict[str, Any], num_tokens: int = NUM_TOKENS) -> str:
    stream = await api.client.completions.create(
        model=NAME, prompt="once upon a time", max_tokens=num_tokens, stream=True, **fields
    )
    return "".join([piece.choices[0].text async for piece in stream])


async def ask_all(api: RunningApi) -> list[str]:
    return await asyncio.gather(*(ask(api, fields) for fields in REQUESTS))


async def some_tokens(server: EngineServer, num_more: int) -> None:
    before = server.metrics().value(metrics.OUTPUT_TOKENS)
    await asyncio.to_thread(
        server.wait_metrics, lambda now: now.value(metrics.OUTPUT_TOKENS) >= before + num_more
    )


def expected(model: ServedModel, num_tokens: int) -> str:
    prompt = model.codec.encode_prompt("once upon a time")
    return model.greedy(prompt, num_tokens, continues_text=True).text


@pytest.mark.parametrize("num_stages", [2, 3])
async def test_tokens_equal_transformers_and_workers_end_in_order(
    served_model: ServedModel, key_file: Path, num_stages: int
) -> None:
    async with serving(served_model, key_file, num_stages) as pipeline:
        assert await ask(pipeline.api, REQUESTS[0], 40) == expected(served_model, 40)
        workers = [pid for host in pipeline.hosts for pid in host.worker_pids()]
        assert len(workers) == num_stages
        assert pipeline.server.live_pids() == (pipeline.server.pid,)
        # Asked to end, a stage host first lets the leader finish; the others wait for the next one.
        os.kill(pipeline.hosts[1].pid, signal.SIGTERM)
        assert await ask(pipeline.api, REQUESTS[0], 40) == expected(served_model, 40)
        pipeline.server.signal(signal.SIGTERM)
        assert await asyncio.to_thread(pipeline.server.wait) == 0
        assert await asyncio.to_thread(all_have_ended, workers)
        assert await asyncio.to_thread(pipeline.hosts[1].wait) == 0
        assert not has_ended(pipeline.hosts[0].pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_worker_that_is_killed_or_stopped_costs_time_only(
    served_model: ServedModel, key_file: Path, number: signal.Signals
) -> None:
    async with serving(served_model, key_file) as pipeline:
        undisturbed = await ask_all(pipeline.api)
        streams = asyncio.create_task(ask_all(pipeline.api))
        await some_tokens(pipeline.server, 100)
        (worker,) = pipeline.hosts[1].worker_pids()
        os.kill(worker, number)
        assert await streams == undisturbed
        assert pipeline.server.metrics().value(metrics.RECOVERIES) == 1
        assert await asyncio.to_thread(all_have_ended, [worker])


async def test_a_stage_host_that_is_killed_takes_its_worker_along_and_another_takes_its_place(
    served_model: ServedModel, key_file: Path
) -> None:
    async with serving(served_model, key_file) as pipeline:
        undisturbed = await ask_all(pipeline.api)
        streams = asyncio.create_task(ask_all(pipeline.api))
        await some_tokens(pipeline.server, 100)
        (worker,) = pipeline.hosts[1].worker_pids()
        os.kill(pipeline.hosts[1].pid, signal.SIGKILL)
        assert await asyncio.to_thread(all_have_ended, [worker])
        pipeline.add_host(1)
        assert await streams == undisturbed


async def test_a_stage_host_that_is_stopped_disturbs_nothing(
    served_model: ServedModel, key_file: Path
) -> None:
    """Its worker talks to the leader itself, and is seen to be alive."""
    async with serving(served_model, key_file) as pipeline:
        undisturbed = await ask_all(pipeline.api)
        os.kill(pipeline.hosts[1].pid, signal.SIGSTOP)
        assert await ask_all(pipeline.api) == undisturbed
        (worker,) = pipeline.hosts[1].worker_pids()
        streams = asyncio.create_task(ask_all(pipeline.api))
        await some_tokens(pipeline.server, 100)
        os.kill(worker, signal.SIGKILL)
        await asyncio.to_thread(pipeline.server.wait_for_line, "starting the stages anew")
        os.kill(pipeline.hosts[1].pid, signal.SIGCONT)
        assert await streams == undisturbed


async def test_workers_end_with_their_leader_and_serve_the_next_one(
    served_model: ServedModel, key_file: Path
) -> None:
    async with serving(served_model, key_file) as pipeline:
        workers = [pid for host in pipeline.hosts for pid in host.worker_pids()]
        os.kill(pipeline.server.pid, signal.SIGKILL)
        assert await asyncio.to_thread(all_have_ended, workers)
        addresses = [address_of(index) for index in range(2)]
        flags = leader_flags(addresses, pipeline.port, key_file)
        server = pipeline.stack.enter_context(EngineServer(served_model.folder, *flags))
        await asyncio.to_thread(server.wait_serving)
        api = RunningApi(server.port)
        assert await ask(api, REQUESTS[0], 40) == expected(served_model, 40)
        await api.close()


async def test_who_does_not_belong_here_is_told_why_and_disturbs_nothing(
    served_model: ServedModel, key_file: Path
) -> None:
    async with serving(served_model, key_file, group_epoch=4) as pipeline:
        older = pipeline.add_host(1, flags=["--group-epoch=3"])
        assert await asyncio.to_thread(older.wait) == 1
        assert "refused by the leader: group epoch 3 is over: this leader's is 4" in older.log
        second = pipeline.add_host(1, flags=["--group-epoch=4"])
        await asyncio.to_thread(second.wait_for_line, "stage 1 has a stage host already")
        assert second.worker_pids() == ()
        assert await ask(pipeline.api, REQUESTS[0], 40) == expected(served_model, 40)
        assert pipeline.server.metrics().value(metrics.RECOVERIES) == 0


async def test_strangers_get_nothing_and_disturb_nothing(
    served_model: ServedModel, key_file: Path, tmp_path: Path
) -> None:
    async with serving(served_model, key_file) as pipeline:
        streams = asyncio.create_task(ask_all(pipeline.api))
        other_key = pipeline.add_host(1, key_file=save_group_key(tmp_path / "other.key"))
        for _ in range(20):
            with socket.create_connection((LEADER, pipeline.port)) as stranger:
                stranger.sendall(os.urandom(4096))
        assert len(await streams) == len(REQUESTS)
        assert pipeline.server.metrics().value(metrics.RECOVERIES) == 0
        assert "joined" not in other_key.log
        assert other_key.worker_pids() == ()
