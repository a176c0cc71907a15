"""A run of the real engine, recorded, gives the same micro-batches in the twin."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from api_server import RunningApi
from engine_server import NAME, EngineServer
from pipelineserve_cli.replays.calls import read_recorded_run
from pipelineserve_simulator.replay.player import replay
from pipelineserve_simulator.replay.recorded import Ended, Sent
from served_model import ServedModel

pytestmark = pytest.mark.anyio

SYSTEM = list(range(20, 70))
CHUNK_TOKENS = 24


async def complete(api: RunningApi, prompt: list[int], max_tokens: int) -> None:
    await api.client.completions.create(
        model=NAME, prompt=prompt, max_tokens=max_tokens, temperature=0,
        extra_body={"ignore_eos": True},
    )  # fmt: skip


async def hang_up(api: RunningApi, prompt: list[int]) -> None:
    """Take two tokens of a long answer and leave."""
    stream: Any = await api.client.completions.create(
        model=NAME, prompt=prompt, max_tokens=150, temperature=0, stream=True,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    async for _ in stream:
        break
    await stream.close()


async def test_a_recorded_run_of_the_engine_is_the_same_in_the_twin(
    served_model: ServedModel, tmp_path: Path
) -> None:
    path = tmp_path / "record.jsonl"
    flags = (
        *("--stages=2", f"--static-chunk-tokens={CHUNK_TOKENS}", "--block-tokens=8"),
        *("--kv-tokens=256", f"--trace-file={path}"),  # few, so that requests are preempted
    )
    with EngineServer(served_model.folder, *flags) as server:
        api = RunningApi(server.wait_serving().port)
        try:
            await complete(api, SYSTEM, 4)
            prompts = [SYSTEM + [100 + index] * (5 + 11 * index) for index in range(6)]
            await asyncio.gather(
                *(complete(api, prompt, 30) for prompt in prompts), hang_up(api, SYSTEM)
            )
        finally:
            await api.close()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    run = read_recorded_run(path)
    replayed = replay(run)
    assert replayed.divergence is None
    assert replayed.num_equal == sum(isinstance(call, Sent) for call in run.calls) > 30
    assert any(isinstance(call, Ended) and call.is_early for call in run.calls)
