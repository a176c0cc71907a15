"""The server's `--transport`: the same text through every kind, also when a stage is killed."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from api_server import RunningApi
from engine_server import NAME, EngineServer
from pipelineserve import metrics
from served_model import ServedModel

pytestmark = pytest.mark.anyio

PROMPT = "once upon a time"
# Long enough to be under way when the stage is killed, however busy the machine is.
NUM_TOKENS = 1500


async def ask(api: RunningApi, num_tokens: int) -> str:
    stream = await api.client.completions.create(
        model=NAME, prompt=PROMPT, max_tokens=num_tokens, temperature=0, stream=True
    )
    return "".join([piece.choices[0].text async for piece in stream])


def shared_memory_files() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir() if "pserve" in path.name}  # noqa: S108


@pytest.mark.parametrize("transport", ["shared_memory", "gloo"])
@pytest.mark.parametrize("num_stages", [2, 3])
async def test_the_text_is_transformers_and_a_killed_stage_changes_nothing(
    served_model: ServedModel, transport: str, num_stages: int
) -> None:
    prompt = served_model.codec.encode_prompt(PROMPT)
    flags = (f"--stages={num_stages}", f"--transport={transport}", "--static-chunk-tokens=8")
    with EngineServer(served_model.folder, *flags) as server:
        await asyncio.to_thread(server.wait_serving)
        api = RunningApi(server.port)
        expected = served_model.greedy(prompt, 60, continues_text=True).text
        assert await ask(api, 60) == expected
        undisturbed = await ask(api, NUM_TOKENS)
        before = server.metrics().value(metrics.OUTPUT_TOKENS)
        stream = asyncio.create_task(ask(api, NUM_TOKENS))
        await asyncio.to_thread(
            server.wait_metrics, lambda now: now.value(metrics.OUTPUT_TOKENS) >= before + 20
        )
        os.kill(server.stage_pids[num_stages // 2], signal.SIGKILL)
        assert await stream == undisturbed
        assert server.metrics().value(metrics.RECOVERIES) == 1
        await api.close()
        server.signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.wait) == 0
        assert server.leftovers() == []
    assert shared_memory_files() == set()
