"""A real engine under a real sidecar while parts of both are killed: no stream is ever cut."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_client import ControlClient, ControlSessionClient
from engine_server import EngineServer
from pipelineserve import metrics
from pipelineserve.policy.reasons import Reason
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from served_model import ServedModel
from streaming_load import streaming_load
from supervised_sidecar import SupervisedSidecar, a_resource

FLAGS = ("--stages=2", "--static-chunk-tokens=48", "--max-chunk-tokens=256")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"unix:{tmp_path_factory.mktemp('faults')}/control.sock"


@pytest.fixture(scope="module")
def server(served_model: ServedModel, address: str) -> Iterator[EngineServer]:
    """Two stages; afterwards no request has failed."""
    with EngineServer(served_model.folder, *FLAGS, f"--control-address={address}") as running:
        running.wait_serving()
        yield running
        samples = running.metrics()
        assert samples.value(metrics.REQUESTS, outcome="length") > 0
        for outcome in ("error", "cancelled", "rejected"):
            assert samples.value(metrics.REQUESTS, outcome=outcome) == 0


@pytest.fixture
def observer(server: EngineServer, address: str) -> Iterator[ControlSessionClient]:
    """Looks on at an engine that no controller steers yet."""
    server.wait_metrics(
        lambda now: not now.value(metrics.WATCHERS) + now.value(metrics.POLICY_IN_FORCE)
    )
    with ControlClient(address) as client:
        yield client.observe()


def wait_in_force(observer: ControlSessionClient, after_epoch: int = 0) -> pb.Snapshot:
    """Once a policy of a later session than that is in force and micro-batches run under it."""
    snapshot = observer.wait_snapshot(
        lambda now: now.policy_epoch > after_epoch and now.policy_sequence > 0
    )
    observer.wait_steps(lambda step: step.policy_epoch >= snapshot.policy_epoch)
    return snapshot


def test_a_killed_controller_is_back_with_a_session_of_its_own_and_what_it_had_learned(
    server: EngineServer, observer: ControlSessionClient, address: str, tmp_path: Path
) -> None:
    with streaming_load(server), SupervisedSidecar(tmp_path / "sidecar", address) as sidecar:
        before = wait_in_force(observer)
        learned = sidecar.wait_state(lambda now: now["model"]["num_samples"] >= 500)
        child = sidecar.child_pid()
        os.kill(child, signal.SIGKILL)
        wait_in_force(observer, after_epoch=before.policy_epoch)
        state = sidecar.wait_state(lambda now: now["control"]["is_effective"])
        assert sidecar.child_pid() != child
        assert state["started_unix_s"] > learned["started_unix_s"]
        assert state["model"]["num_samples"] >= learned["model"]["num_samples"]
        assert "restored from turns-" in sidecar.log
        assert "Traceback" not in sidecar.log


def test_without_a_sidecar_the_static_chunk_holds_until_another_one_is_there(
    server: EngineServer, observer: ControlSessionClient, address: str, tmp_path: Path
) -> None:
    lapses = server.metrics().value(metrics.POLICY_LAPSES)
    with streaming_load(server):
        with SupervisedSidecar(tmp_path / "first", address) as first:
            before = wait_in_force(observer)
            first.edit(a_resource(static_tokens=40))
            observer.wait_steps(lambda step: step.chunk_tokens == 40)
            first.kill()
        after = server.wait_metrics(lambda now: not now.value(metrics.POLICY_IN_FORCE))
        assert after.value(metrics.POLICY_LAPSES) == lapses + 1
        without = observer.wait_snapshot(lambda now: not now.policy_sequence)
        assert (without.policy_epoch, without.num_held, without.lease_left_s) == (0, 0, 0)
        num_before = len(observer.steps)
        observer.wait_steps(lambda step: not step.policy_sequence, number=20)
        # Of the resource as it was last edited, not what the engine was started with.
        free = [step for step in observer.steps[num_before:] if not step.policy_sequence]
        assert {step.chunk_tokens for step in free} == {40}
        refused = after.value(metrics.POLICIES, outcome="old_session")
        with SupervisedSidecar(tmp_path / "second", address) as second:
            wait_in_force(observer, after_epoch=before.policy_epoch)
            second.wait_state(lambda now: now["control"]["is_effective"])
        assert server.metrics().value(metrics.POLICIES, outcome="old_session") == refused


def test_a_restarted_engine_is_found_and_told_again(
    served_model: ServedModel, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/control.sock"
    flags = (*FLAGS, f"--control-address={address}")
    with SupervisedSidecar(tmp_path / "sidecar", address) as sidecar:
        epochs = []
        for num_sessions in (1, 2):
            with (
                EngineServer(served_model.folder, *flags) as server,
                ControlClient(address) as client,
            ):
                server.wait_serving()
                observer = client.observe()
                with streaming_load(server):
                    epochs.append(wait_in_force(observer).policy_epoch)
                    observer.wait_steps(lambda step: step.chunk_tokens == 32)
                state = sidecar.wait_state(lambda now: now["control"]["is_effective"])
                assert state["connection"]["num_sessions"] == num_sessions
                server.signal(signal.SIGTERM)
                assert server.wait() == 0
            sidecar.wait_state(lambda now: not now["connection"]["is_connected"])
        assert epochs[1] > epochs[0]
        assert "started again" not in sidecar.log


def test_of_two_sidecars_only_the_newer_acts_and_the_older_when_that_is_gone(
    server: EngineServer, observer: ControlSessionClient, address: str, tmp_path: Path
) -> None:
    with streaming_load(server), SupervisedSidecar(tmp_path / "older", address) as older:
        first = wait_in_force(observer)
        with SupervisedSidecar(tmp_path / "newer", address, a_resource(static_tokens=24)) as newer:
            second = wait_in_force(observer, after_epoch=first.policy_epoch)
            newer.wait_state(lambda now: now["control"]["is_effective"])
            older.wait_state(lambda now: now["control"]["is_superseded"])
            # Three renewals take longer than the older one's lease.
            renewed = second.policy_sequence + 4
            num_before = len(observer.steps)
            observer.wait_snapshot(lambda now: now.policy_sequence >= renewed)
            meanwhile = {(s.policy_epoch, s.chunk_tokens) for s in observer.steps[num_before:]}
            assert meanwhile == {(second.policy_epoch, 24)}
            state = older.wait_state(lambda _: True)
            assert (state["control"]["is_superseded"], state["control"]["is_effective"]) == (
                True,
                False,
            )
            newer.kill()
        third = wait_in_force(observer, after_epoch=second.policy_epoch)
        state = older.wait_state(lambda now: now["control"]["is_effective"])
        assert not state["control"]["is_superseded"]
        assert (
            observer.wait_steps(lambda s: s.policy_epoch == third.policy_epoch).chunk_tokens == 32
        )


def test_a_stage_that_is_killed_stops_neither_requests_nor_control(
    server: EngineServer, observer: ControlSessionClient, address: str, tmp_path: Path
) -> None:
    with streaming_load(server), SupervisedSidecar(tmp_path / "sidecar", address) as sidecar:
        before = wait_in_force(observer)
        recoveries = server.metrics().value(metrics.RECOVERIES)
        os.kill(server.stage_pids[1], signal.SIGKILL)
        server.wait_metrics(lambda now: now.value(metrics.RECOVERIES) > recoveries)
        now = observer.wait_snapshot(lambda _: True)
        step = observer.wait_steps(lambda step: step.policy_sequence > now.policy_sequence)
        assert step.policy_epoch == before.policy_epoch
        state = sidecar.wait_state(lambda now: now["control"]["is_effective"])
        assert state["connection"]["num_sessions"] == 1


def test_an_edit_of_a_target_reaches_a_micro_batch(
    server: EngineServer, observer: ControlSessionClient, address: str, tmp_path: Path
) -> None:
    violated = Reason.TPOT_VIOLATED.value
    resource = a_resource(policy="Greedy")
    with (
        streaming_load(server),
        SupervisedSidecar(tmp_path / "sidecar", address, resource) as sidecar,
    ):
        wait_in_force(observer)
        # A step under a decision that was made with measurements, and met the loose target.
        observer.wait_steps(lambda step: step.chunk_reason == Reason.TTFT_HAS_SLACK.value)
        assert violated not in {step.chunk_reason for step in observer.steps}
        sidecar.edit(a_resource(policy="Greedy", tpot_ms=1))
        step = observer.wait_steps(lambda step: step.chunk_reason == violated)
        assert step.policy_sequence > 0
