"""The loop on a scripted engine: sends, renews, falls silent, and is in charge again."""

import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from control_turns import make_objectives
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.objectives import ChunkLaw, Mode
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_controller.journal import Journal, journal_files
from pipelineserve_controller.objectives import Source
from pipelineserve_controller.replay import replay
from scripted_scheduler import ScriptedScheduler
from sidecar_parts import STATIC, RunningLoop, make_link, running, running_loop, until


def address_in(folder: Path) -> str:
    return f"unix:{folder}/control.sock"


def chunks(scheduler: ScriptedScheduler) -> list[int]:
    policies = [leased.policy.chunking for leased in scheduler.applied]
    return [policy.chunk_tokens for policy in policies if isinstance(policy, Static)]


def test_sends_a_policy_and_renews_it_before_its_lease_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_loop(address_in(tmp_path)) as run:
            await until(lambda: len(scheduler.applied) >= 4, "a policy and its renewals")
            assert run.loop.applied_generation == 1
            await until(lambda: run.loop.state.control.is_effective, "that it is shown")

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())
        assert set(chunks(scheduler)) == {256}
        assert {leased.lease_s for leased in scheduler.applied} == {2.0}


def test_without_objectives_nothing_is_sent_and_the_state_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_loop(address_in(tmp_path), None) as run:
            await until(lambda: run.loop.num_turns > 5 and run.link.is_connected, "some turns")
            state = run.loop.state
            assert state.freshness.reason == Reason.NO_OBJECTIVES.value
            assert state.connection.is_connected

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())
        assert scheduler.applied == []


def test_an_edit_holds_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_loop(address_in(tmp_path)) as run:
            await until(lambda: 256 in chunks(scheduler), "the first policy")
            edited = make_objectives(
                chunk_law=ChunkLaw.STATIC, static_tokens=512, generation=2, lease_s=2.0
            )
            run.store.offer(edited, Source.FILE)
            await until(lambda: 512 in chunks(scheduler), "the edited chunk")
            # The engine has it before its answer is back.
            await until(lambda: run.loop.applied_generation == 2, "the answer")

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())


def test_an_engine_that_starts_anew_is_sent_the_policy_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_loop(address_in(tmp_path)):
            with ScriptedScheduler(address_in(tmp_path)) as first:
                await until(lambda: bool(first.applied), "a policy")
            with ScriptedScheduler(address_in(tmp_path), first_epoch=10) as second:
                await until(lambda: bool(second.applied), "the policy again")
                assert second.refused == []

    asyncio.run(scenario())


def in_mode(mode: Mode) -> object:
    return make_objectives(chunk_law=ChunkLaw.STATIC, mode=mode, generation=2, lease_s=1.0)


def falls_silent(run: RunningLoop, scheduler: ScriptedScheduler, mode: Mode) -> bool:
    state = run.loop.state
    return state.control.mode is mode and not state.control.is_effective and bool(scheduler.applied)


def test_advisory_and_paused_send_nothing_so_that_the_lease_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_loop(address_in(tmp_path)) as run:
            for mode in (Mode.ADVISORY, Mode.PAUSED):
                run.store.offer(STATIC, Source.FILE)
                run.store.current = STATIC
                await until(lambda: run.loop.state.control.is_effective, "a policy in force")
                run.store.offer(in_mode(mode), Source.FILE)  # type: ignore[arg-type]
                await until(lambda: falls_silent(run, scheduler, mode), f"{mode} to fall silent")  # noqa: B023
                assert run.loop.applied_generation == 2

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())


def test_silence_of_the_engine_is_said_and_the_last_policy_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_loop(address_in(tmp_path)) as run:
            await until(lambda: run.loop.state.control.is_effective, "a policy in force")
            scheduler.is_silent = True
            await until(
                lambda: run.loop.state.freshness.reason == Reason.INPUT_STALE.value, "staleness"
            )
            num_applied = len(scheduler.applied)
            await until(lambda: len(scheduler.applied) > num_applied, "a renewal while stale")
            assert run.loop.state.load.kv_free_ratio == 1.0

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())


def test_after_a_later_controller_has_gone_this_one_is_in_charge_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_loop(address_in(tmp_path)) as run:
            await until(lambda: run.loop.state.control.is_effective, "a policy in force")
            other = make_link(address_in(tmp_path))
            async with running(other.run()):
                await until(lambda: other.is_connected, "the later session")
                await until(lambda: run.link.is_superseded, "a refusal")
            num_applied = len(scheduler.applied)
            await until(lambda: len(scheduler.applied) > num_applied, "a policy of the first again")

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())


def test_a_later_controller_has_time_to_send_its_first_policy(tmp_path: Path) -> None:
    brief = make_objectives(chunk_law=ChunkLaw.STATIC, lease_s=0.5)

    async def scenario() -> None:
        async with running_loop(address_in(tmp_path), brief) as run:
            await until(lambda: run.loop.state.control.is_effective, "a policy in force")
            later = make_link(address_in(tmp_path))
            async with running(later.run()):
                await until(lambda: run.loop.state.control.is_superseded, "a refusal")
                await until(lambda: run.loop.state.control.lease_left_s == 0.0, "the lease's end")
                num_turns = run.loop.num_turns
                await until(lambda: run.loop.num_turns > num_turns + 10, "turns without a policy")
                await later.apply(LeasedPolicy(SchedulingPolicy(Static(128)), 60.0))
                num_turns = run.loop.num_turns
                await until(lambda: run.loop.num_turns > num_turns + 10, "turns under it")
                assert run.loop.state.control.is_superseded
                assert not run.loop.state.control.is_effective

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())
        assert (scheduler.num_sessions, chunks(scheduler)[-1]) == (2, 128)


def test_an_edit_of_the_static_chunk_reaches_the_engine_whatever_chunk_is_sent(
    tmp_path: Path,
) -> None:
    greedy = make_objectives(chunk_law=ChunkLaw.GREEDY, lease_s=300.0)

    async def scenario() -> None:
        async with running_loop(address_in(tmp_path), greedy) as run:
            await until(lambda: bool(scheduler.applied), "a policy")
            run.store.offer(replace(greedy, static_tokens=512, generation=2), Source.FILE)
            await until(lambda: run.loop.applied_generation == 2, "the edit")

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())
        assert scheduler.applied[0].static_chunk_tokens == 256
        assert scheduler.applied[-1].static_chunk_tokens == 512
        assert set(chunks(scheduler)) == {256}


def test_impossible_records_are_counted_and_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_loop(address_in(tmp_path)) as run:
            await until(lambda: run.link.is_connected, "a session")
            bad = pb.Records(snapshot=pb.Snapshot(kv_free_ratio=float("nan")))
            scheduler.tell(bad)
            await until(lambda: run.loop.state.freshness.num_refused == 1, "the count")

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())


def test_each_change_is_announced_once_as_a_line_of_json(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with running_loop(address_in(tmp_path)) as run:
            await until(lambda: len(scheduler.applied) >= 3, "renewals")
            return run.announced.getvalue().splitlines()

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        decisions = [json.loads(line)["decision"] for line in asyncio.run(scenario())]
    assert decisions[-1]["reason"] == Reason.STATIC_CHUNK.value
    keys = [(decision["summary"], decision["reason"]) for decision in decisions]
    assert all(one != next_one for one, next_one in pairwise(keys))


def test_a_live_journal_replays_without_a_difference(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", max_bytes=20_000, max_files=100)

    async def scenario() -> None:
        async with running_loop(address_in(tmp_path), make_objectives(), journal=journal) as run:
            await until(lambda: run.link.is_connected, "a session")
            for sequence in range(1, 200):
                size = (4, 16, 64, 256)[sequence % 4]
                time_s = 0.01 + size * 1e-4
                step = pb.StepRecord(
                    sequence=sequence,
                    chunk_tokens=256,
                    num_tokens=size,
                    num_decodes=2,
                    span_s=2 * time_s,
                    step_time_s=[time_s] * 2,
                    bubble_s=[0.0] * 2,
                )
                scheduler.tell(pb.Records(steps=[step]))
                await asyncio.sleep(0.01)
            await until(lambda: run.loop.state.model.is_ready, "a model")
            await until(
                lambda: run.loop.state.decisions[0].reason == Reason.MODEL_READY.value, "its use"
            )

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())
    journal.close()
    assert len(journal_files(tmp_path / "journal")) > 1
    result = replay(tmp_path / "journal")
    assert result.num_turns > 20
    assert result.differences == ()
