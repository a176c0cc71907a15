"""Stages as real processes: the same tokens as transformers, and no end goes unnoticed."""

import os
import random
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from prometheus_client import CollectorRegistry

from engine_server import PATIENCE_S, all_have_ended, has_ended, wait_until
from held_worker import announce_support
from pipelineserve.errors import EngineUnavailableError
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.preemption import AlwaysSwap
from pipelineserve.scheduler.messages import Accepted
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_engine.core import EngineCore
from pipelineserve_engine.generation import GenerationRequest
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.stage_messages import ReadyReport, StageReport, StepReport
from pipelineserve_engine.telemetry import Telemetry
from pipelineserve_engine.transport.link_settings import TransportKind
from real_pipeline import BLOCK_TOKENS, NUM_BLOCKS, a_plan
from served_model import ServedModel
from still_worker import MODULE as STILL_MODULE
from tiny_models import VOCABULARY_SIZE

PARTITIONS = {1: (5,), 2: (2, 3), 3: (1, 3, 1), 4: (2, 1, 1, 1)}
NUM_TOKENS = 10


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files whose path is short enough for sockets; left empty."""
    with tempfile.TemporaryDirectory(prefix="e2e-") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)
        assert list(Path(name).iterdir()) == []


def a_core(group: StageGroup, num_stages: int, chunk_tokens: int) -> EngineCore:
    settings = SchedulerSettings(
        num_slots=num_stages,
        max_chunk_tokens=64,
        num_blocks=NUM_BLOCKS,
        block_tokens=BLOCK_TOKENS,
        max_context_tokens=256,
    )
    observer = Observer(Telemetry(CollectorRegistry()), num_stages)
    return EngineCore(Scheduler(settings, Static(chunk_tokens)), group, observer)


def some_prompts(seed: int) -> dict[str, tuple[int, ...]]:
    """Prompts of several lengths; two share a prefix."""
    chance = random.Random(seed)
    prompts = {
        f"r{length}": tuple(chance.randrange(VOCABULARY_SIZE) for _ in range(length))
        for length in (1, 5, 33, 70, 18)
    }
    return {**prompts, "shared": (*prompts["r33"][:20], 7, 7)}


def run(
    group: StageGroup,
    core: EngineCore,
    prompts: Mapping[str, tuple[int, ...]],
    num_tokens: int = NUM_TOKENS,
) -> tuple[dict[str, list[int]], list[StepReport]]:
    """Bring all prompts to their end; return their tokens and what the stages reported."""
    outputs: defaultdict[str, list[int]] = defaultdict(list)
    steps: list[StepReport] = []
    for name, prompt in prompts.items():
        assert isinstance(core.submit(GenerationRequest(name, prompt, num_tokens), 0.0), Accepted)
    while core.scheduler.has_work:
        core.fill_slots(0.0)
        for report in group.receive(1.0):
            assert isinstance(report, StepReport)
            steps.append(report)
            for emission in core.absorb(report, 0.0):
                if emission.token_id is not None:
                    outputs[emission.request_id].append(emission.token_id)
    return outputs, steps


@pytest.mark.parametrize("kind", [TransportKind.SHARED_MEMORY, TransportKind.GLOO])
@pytest.mark.parametrize("num_stages", PARTITIONS)
def test_tokens_equal_transformers_whatever_the_chunk_and_the_transport(
    served_model: ServedModel, nursery: Nursery, num_stages: int, kind: TransportKind
) -> None:
    torch.set_num_threads(1)
    ready: list[ReadyReport] = []
    with StageGroup(a_plan(served_model.folder, PARTITIONS[num_stages], kind), nursery) as group:
        group.start(ready.append)
        for chunk_tokens in (7, 64):
            core = a_core(group, num_stages, chunk_tokens)
            prompts = some_prompts(chunk_tokens)
            outputs, steps = run(group, core, prompts)
            assert outputs == {
                name: served_model.model.greedy(prompt, NUM_TOKENS)
                for name, prompt in prompts.items()
            }
            assert core.scheduler.census().is_conserved
            assert core.scheduler.kv_used_ratio == 0.0
            # The last stage's report may overtake those of the stages before it.
            while len(steps) < num_stages * sum(step.token_ids is not None for step in steps):
                steps += [step for step in group.receive(1.0) if isinstance(step, StepReport)]
            assert_each_stage_ran_after_the_one_before(steps, num_stages)
        pids = group.pids
    assert sorted(report.stage_index for report in ready) == list(range(num_stages))
    assert {report.pid for report in ready} == set(pids)
    assert all(map(has_ended, pids))


@pytest.mark.parametrize("num_stages", [1, 2, 3])
def test_kv_that_was_on_the_host_meanwhile_gives_the_same_tokens(
    served_model: ServedModel, nursery: Nursery, num_stages: int
) -> None:
    torch.set_num_threads(1)
    ready: list[ReadyReport] = []
    plan = a_plan(served_model.folder, PARTITIONS[num_stages], num_blocks=12, num_host_blocks=32)
    sizes = SchedulerSettings(
        num_slots=num_stages, max_chunk_tokens=64, num_blocks=12, block_tokens=BLOCK_TOKENS,
        max_context_tokens=90, num_host_blocks=32,
    )  # fmt: skip
    with StageGroup(plan, nursery) as group:
        group.start(ready.append)
        scheduler = Scheduler(sizes, Static(20), preemption=AlwaysSwap())
        core = EngineCore(scheduler, group, Observer(Telemetry(CollectorRegistry()), num_stages))
        prompts = {name: prompt[:38] for name, prompt in some_prompts(5).items()}
        outputs, _ = run(group, core, prompts, 30)
    assert all(report.copy_s_per_block > 0.0 for report in ready)
    assert scheduler.tally.swaps > 0
    assert outputs == {
        name: served_model.model.greedy(prompt, 30) for name, prompt in prompts.items()
    }


def assert_each_stage_ran_after_the_one_before(steps: list[StepReport], num_stages: int) -> None:
    by_stage = [[s for s in steps if s.stage_index == index] for index in range(num_stages)]
    for stage in by_stage:
        assert [step.sequence for step in stage] == list(range(len(stage)))
        assert len(stage) == len(by_stage[0])
    for earlier, later in pairwise(by_stage):
        assert all(a.end_s <= b.start_s for a, b in zip(earlier, later, strict=True))


def test_pieces_of_one_prompt_are_in_several_stages_at_once(
    served_model: ServedModel, nursery: Nursery
) -> None:
    prompt = some_prompts(1)["r70"]
    with StageGroup(a_plan(served_model.folder, PARTITIONS[2]), nursery) as group:
        group.start(lambda _: None)
        core = a_core(group, 2, chunk_tokens=7)
        core.submit(GenerationRequest("r70", prompt, NUM_TOKENS), 0.0)
        os.kill(group.pids[1], signal.SIGSTOP)
        core.fill_slots(0.0)
        ahead: list[StageReport] = []
        while len(ahead) < 2:
            ahead += group.receive(1.0)
        os.kill(group.pids[1], signal.SIGCONT)
        assert [(r.stage_index, r.sequence) for r in ahead if isinstance(r, StepReport)] == [
            (0, 0),
            (0, 1),
        ]
        outputs, _ = run(group, core, {})
    assert outputs == {"r70": served_model.model.greedy(prompt, NUM_TOKENS)}


@pytest.mark.parametrize("kind", [TransportKind.SHARED_MEMORY, TransportKind.GLOO])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_stage_is_named_and_everything_ends(
    served_model: ServedModel, nursery: Nursery, victim: int, kind: TransportKind
) -> None:
    """Also where its neighbour, which lost its link, complains first."""
    with StageGroup(a_plan(served_model.folder, PARTITIONS[2], kind), nursery) as group:
        group.start(lambda _: None)
        core = a_core(group, 2, chunk_tokens=4)
        core.submit(GenerationRequest("r", tuple(range(200)), 50), 0.0)
        os.kill(group.pids[victim], signal.SIGSTOP)
        core.fill_slots(0.0)
        os.kill(group.pids[victim], signal.SIGKILL)
        with pytest.raises(EngineUnavailableError) as ended:
            receive_for_ever(group, core)
        assert str(ended.value).startswith(f"stage {victim} ended with signal 9 (SIGKILL")
        # Its socket has lost its peer: a send that waited would wait for ever.
        with pytest.raises(EngineUnavailableError, match=f"stage {victim} ended with signal 9"):
            send_for_ever(core)
    assert all_have_ended(group.pids)


def receive_for_ever(group: StageGroup, core: EngineCore) -> None:
    while True:
        for report in group.receive(1.0):
            core.absorb(report, 0.0)


def send_for_ever(core: EngineCore) -> None:
    core.fail_all(0.0)
    while True:
        core.submit(GenerationRequest("again", (1, 2, 3), 2), 0.0)
        core.fill_slots(0.0)
        core.fail_all(0.0)


def test_a_model_that_cannot_be_loaded_is_the_stages_own_message(
    served_model: ServedModel, nursery: Nursery, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes((served_model.folder / "config.json").read_bytes())
    group = StageGroup(a_plan(tmp_path, (5,)), nursery)
    with group, pytest.raises(EngineUnavailableError) as refused:
        group.start(lambda _: None)
    message = str(refused.value)
    assert message.startswith("stage 0 failed: ")
    assert "expected readable model.safetensors" in message
    assert "Traceback" not in message
    assert all(has_ended(pid) for pid in group.pids)


def test_stopping_before_the_stages_are_ready_does_not_wait_for_them(
    served_model: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce_support(monkeypatch)
    plan = a_plan(served_model.folder, PARTITIONS[2])
    with Nursery() as own, StageGroup(plan, own, STILL_MODULE) as group:
        group._spawn_all()
        pids = wait_until(lambda: group.pids, lambda pids: len(pids) == 2)
        assert group.receive(0.0) == []
        group.stop()
        assert all(has_ended(pid) for pid in pids)
        group.stop()  # again: nothing is left to do


def test_stopping_before_any_stage_runs_waits_for_no_import(served_model: ServedModel) -> None:
    with Nursery() as own, StageGroup(a_plan(served_model.folder, PARTITIONS[2]), own) as group:
        group._spawn_all()
        assert group.pids == ()
        group.stop()
        assert group.pids == ()


def test_a_folder_too_deep_for_sockets_is_named_with_advice(
    served_model: ServedModel, nursery: Nursery, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = own_folder / ("deep" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(EngineUnavailableError, match="set TMPDIR to a short path"):
        StageGroup(a_plan(served_model.folder, (5,)), nursery)
    assert list(deep.iterdir()) == []
    deep.rmdir()


def test_wake_ends_a_wait(served_model: ServedModel, nursery: Nursery) -> None:
    with StageGroup(a_plan(served_model.folder, (5,)), nursery) as group:
        for _ in range(100_000):  # more than the pipe holds
            group.wake()
        assert group.receive(PATIENCE_S) == []
