"""Delay scheduling on the real engine, with boundaries that a CPU does not have by itself."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from control_client import ControlClient, ControlSessionClient
from engine_server import PATIENCE_S, EngineServer
from pipelineserve import metrics
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.policy.step_time import StepTimeModel, StepTimeTable
from pipelineserve.wire.policies import encode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from served_model import ServedModel
from streaming_load import stream_text

BOUNDARIES = (4, 8)
# Five decodes, which each of two slots has of ten streams, cost as much as eight.
STAIRS = StepTimeModel(StepTimeTable((1, 4, 5, 8, 9, 64), (0.01, 0.01, 0.02, 0.02, 0.03, 0.04)))
NUM_STREAMS = 10
NUM_TOKENS = 300


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"unix:{tmp_path_factory.mktemp('holding')}/control.sock"


@pytest.fixture(scope="module")
def server(served_model: ServedModel, address: str) -> Iterator[EngineServer]:
    flags = ("--stages=2", "--static-chunk-tokens=64", f"--control-address={address}")
    with EngineServer(served_model.folder, *flags) as running:
        running.wait_serving()
        yield running


@pytest.fixture(scope="module")
def texts(server: EngineServer) -> list[str]:
    """Of every stream without holding."""
    return ask_all(server)


@pytest.fixture
def session(server: EngineServer, address: str) -> Iterator[ControlSessionClient]:
    server.wait_metrics(lambda now: not now.value(metrics.POLICY_IN_FORCE))
    with ControlClient(address) as client:
        yield client.watch()


def ask_all(server: EngineServer) -> list[str]:
    def ask(index: int) -> str:
        with httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as client:
            return stream_text(client, f"Stream {index} tells.", NUM_TOKENS)

    with ThreadPoolExecutor(NUM_STREAMS) as threads:
        return list(threads.map(ask, range(NUM_STREAMS)))


def holding_policy(mode: HoldMode, max_gap_s: float, lease_s: float = 60.0) -> pb.Policy:
    holding = Rebalance(mode, STAIRS, BOUNDARIES, max_gap_s, hold_budget_s=10.0 * max_gap_s)
    return encode_policy(LeasedPolicy(SchedulingPolicy(Static(64), holding=holding), lease_s))


@pytest.mark.parametrize("mode", HoldMode)
def test_decodes_above_a_boundary_are_held_within_the_gap_and_no_text_changes(
    server: EngineServer, texts: list[str], session: ControlSessionClient, mode: HoldMode
) -> None:
    max_gap_s = 0.5
    first = session.apply(1, holding_policy(mode, max_gap_s))
    assert ask_all(server) == texts
    session.wait(lambda s: len(s.requests) == NUM_STREAMS)
    assert max(batch.snapshot.num_held for batch in session.batches) > 0
    steps = [step for step in session.steps if step.sequence >= first]
    # Who is due is released with the next micro-batch, which the one before may keep waiting.
    longest_s = 2.0 * max(step.span_s for step in steps)
    assert max(request.held_s for request in session.requests) > 0.0
    for request in session.requests:
        assert request.longest_gap_s <= max_gap_s + longest_s
        assert request.held_s <= 10.0 * max_gap_s + longest_s
    held_to = [step.num_decodes for step in steps if step.num_tokens == step.num_decodes]
    assert held_to.count(BOUNDARIES[0]) > held_to.count(NUM_STREAMS // 2)
    session.apply(2, holding_policy(mode, max_gap_s, lease_s=0.05))


def test_who_is_held_comes_back_when_the_lease_ends(
    server: EngineServer, texts: list[str], session: ControlSessionClient
) -> None:
    # Nobody would be released for a gap before this test gives up.
    max_gap_s = 2.0 * PATIENCE_S
    session.apply(1, holding_policy(HoldMode.TPOT_FIRST, max_gap_s))
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask_all, server)
        session.wait_snapshot(lambda now: now.num_held > 0)
        session.apply(2, holding_policy(HoldMode.TPOT_FIRST, max_gap_s, lease_s=0.05))
        free = session.wait_snapshot(lambda now: not now.policy_sequence)
        session.wait_steps(lambda step: not step.policy_sequence)
        released = session.wait_snapshot(lambda _: True)
        assert free.num_running > 0
        assert released.num_held == 0
        assert asking.result() == texts
