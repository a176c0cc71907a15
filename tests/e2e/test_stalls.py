"""Stages that live and get nowhere are noticed, shown and replaced; slow ones are left alone."""

import asyncio
import logging
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from engine_server import wait_until
from held_worker import MODULE, Steps, announce_support
from pipelineserve import metrics
from pipelineserve.errors import StagesFailedError
from pipelineserve.policy.recovery import RecoveryBudget
from pipelineserve_engine.generation import GenerationRequest
from pipelineserve_engine.loop import EngineLoop
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.recovery import Recovery
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.watchdog import Patience
from real_pipeline import RealPipeline, a_plan
from served_model import ServedModel
from still_worker import MODULE as STILL_MODULE

pytestmark = pytest.mark.anyio

NUM_TOKENS = 20
PROMPTS = {"first": (1, 2, 3, 4), "second": tuple(range(40)), "third": (9, 8)}
STALL_S = 5.0


@asynccontextmanager
async def serving(
    model: ServedModel, patience: Patience
) -> AsyncIterator[tuple[EngineLoop, RealPipeline]]:
    """An engine loop over two stages that a test can hold."""
    plan = a_plan(model.folder, (2, 3), patience=patience)
    with Nursery() as own, StageGroup(plan, own, MODULE) as group:
        await asyncio.to_thread(group.start, lambda _: None)
        pipeline = RealPipeline(group, 2, chunk_tokens=16)
        budget = RecoveryBudget(max_restarts=2, window_s=3600.0, first_pause_s=0.0)
        loop = EngineLoop(
            pipeline.core, group, Recovery(budget, 2), lambda _: None, vocabulary_size=1000
        )
        loop.start()
        try:
            yield loop, pipeline
        finally:
            await asyncio.to_thread(loop.stop)


async def ask(loop: EngineLoop, name: str) -> list[int]:
    request = GenerationRequest(name, PROMPTS[name], NUM_TOKENS)
    async with aclosing(loop.generate(request)) as events:
        return [event.token_id async for event in events if event.token_id is not None]


async def ask_all(loop: EngineLoop) -> list[list[int]]:
    return await asyncio.gather(*(ask(loop, name) for name in PROMPTS))


@pytest.mark.parametrize("stage_index", [0, 1])
async def test_a_stalled_pipeline_is_shown_and_replaced_and_streams_go_on_with_the_same_tokens(
    served_model: ServedModel,
    stage_index: int,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    steps = Steps(tmp_path)
    steps.announce(monkeypatch)
    steps.hold(stage_index, 7)
    with caplog.at_level(logging.WARNING):
        async with serving(served_model, Patience(stall_s=STALL_S)) as (loop, pipeline):
            outputs = await ask_all(loop)
            pids = pipeline.group.pids
            assert loop.status().is_ready
    assert outputs == [served_model.model.greedy(prompt, NUM_TOKENS) for prompt in PROMPTS.values()]
    assert (tmp_path / f"reached-{stage_index}-7").exists()
    assert pipeline.value(metrics.RECOVERIES) == 1
    assert re.search(
        r"no stage ended a step for \d+\.\d s although there was work; \d micro-batches in flight; "
        rf"stage 0: heard 0\.\d s ago, last ended step {6 if stage_index == 0 else 8}; ",
        caplog.text,
    )
    dumped = re.findall(r"stacks of stage (\d), pid (\d+):", caplog.text)
    assert [stage for stage, _ in dumped] == ["0", "1"]
    assert not {int(pid) for _, pid in dumped} & set(pids)
    stacks = capfd.readouterr().err
    assert len(re.findall(r'/worker\.py", line \d+ in main', stacks)) == 2
    assert len(re.findall(r'held_worker\.py", line \d+ in run', stacks)) == 1


def test_a_step_longer_than_the_patience_with_silence_is_no_hang(
    served_model: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeats of a stage come on while it computes."""
    steps = Steps(tmp_path)
    steps.announce(monkeypatch)
    steps.hold(0, 0)
    patience = Patience(silence_s=3.0)
    plan = a_plan(served_model.folder, (2, 3), patience=patience)
    with Nursery() as own, StageGroup(plan, own, MODULE) as group:
        group.start(lambda _: None)
        pipeline = RealPipeline(group, 2)
        pipeline.submit({"r": PROMPTS["second"]}, NUM_TOKENS)
        pipeline.fill()
        steps.wait_reached(0, 0)
        since_s = time.monotonic()
        while time.monotonic() - since_s < 2 * patience.silence_s:
            assert group.receive(0.1) == []
        steps.release(0, 0)
        assert pipeline.run() == {"r": served_model.model.greedy(PROMPTS["second"], NUM_TOKENS)}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_stage_that_is_gone_is_noticed_without_any_work(
    served_model: ServedModel,
    number: signal.Signals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Steps(tmp_path).announce(monkeypatch)
    async with serving(served_model, Patience()) as (loop, pipeline):
        assert loop.status().is_ready
        os.kill(pipeline.group.pids[1], number)
        down = await asyncio.to_thread(wait_until, loop.status, lambda now: not now.is_ready)
        assert down.is_live
        assert "stage 1 " in down.detail
        await asyncio.to_thread(wait_until, loop.status, lambda now: now.is_ready)
        assert await ask(loop, "first") == served_model.model.greedy(PROMPTS["first"], NUM_TOKENS)


def test_a_stage_that_stands_still_before_its_first_sign_of_life_has_failed_to_start(
    served_model: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce_support(monkeypatch)
    plan = a_plan(served_model.folder, (2, 3), patience=Patience(start_s=2.0))
    with Nursery() as own, StageGroup(plan, own, STILL_MODULE) as group:
        group._spawn_all()
        with pytest.raises(StagesFailedError, match="stage 0 gave no sign of life"):
            wait_until(lambda: group.receive(0.5), lambda _: False)
