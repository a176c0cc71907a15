"""A real engine under a controller: what it is told adds up, and what it says holds exactly."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from certificates import Authority, client_credentials, replace_pair
from control_client import ControlClient, ControlSessionClient, a_fixed_policy
from engine_server import NAME, PATIENCE_S, EngineServer
from pipelineserve import metrics
from pipelineserve.policy.ordering import Ageing
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.wire.policies import encode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from policy_views import line_model
from served_model import ServedModel

NUM_STAGES = 2
STATIC_CHUNK_TOKENS = 48
MAX_CHUNK_TOKENS = 256
NUM_MALFORMED = 1000
FLAGS = (
    f"--stages={NUM_STAGES}",
    f"--static-chunk-tokens={STATIC_CHUNK_TOKENS}",
    f"--max-chunk-tokens={MAX_CHUNK_TOKENS}",
)

# Sends one Watch and says when its Hello is there.
WATCHER = """
import sys, grpc
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve.wire.v1.scheduler_pb2_grpc import SchedulerControlStub
for event in SchedulerControlStub(grpc.insecure_channel(sys.argv[1])).Watch(pb.WatchRequest()):
    print(event.WhichOneof("event"), flush=True)
"""


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("control") / "control.sock"


@pytest.fixture(scope="module")
def server(served_model: ServedModel, socket_path: Path) -> Iterator[EngineServer]:
    """Two stages; afterwards it must end in order, its watch and its socket file with it."""
    flags = (*FLAGS, f"--control-address=unix:{socket_path}")
    with EngineServer(served_model.folder, *flags) as running:
        running.wait_serving()
        yield running
        with ControlClient(f"unix:{socket_path}") as last:
            session = last.watch()
            running.signal(signal.SIGTERM)
            assert running.wait() == 0
            assert code_of(session.wait_ended()) is grpc.StatusCode.UNAVAILABLE
        assert not socket_path.exists()
        assert "ERROR" not in running.log


@pytest.fixture
def client(server: EngineServer, socket_path: Path) -> Iterator[ControlClient]:
    """Of a server that runs on its static chunk and that nobody else watches."""
    server.wait_metrics(
        lambda now: not now.value(metrics.WATCHERS) + now.value(metrics.POLICY_IN_FORCE)
    )
    with ControlClient(f"unix:{socket_path}") as running:
        yield running


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    assert isinstance(error, grpc.Call)
    return error.code()


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    error = raised.value
    assert isinstance(error, grpc.Call)
    return error.code(), error.details() or ""


def complete(server: EngineServer, prompt: str, max_tokens: int) -> dict[str, Any]:
    """Exactly so many tokens, greedy."""
    body = {
        "model": NAME,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=PATIENCE_S)
    assert answer.status_code == httpx.codes.OK, answer.text
    found: dict[str, Any] = answer.json()
    return found


@contextmanager
def under_load(server: EngineServer, num_streams: int = 2) -> Iterator[list[Future[Any]]]:
    """Requests that run during the block, each for as long as it takes."""
    with ThreadPoolExecutor(num_streams) as threads:
        yield [
            threads.submit(complete, server, f"Load {index}", 300) for index in range(num_streams)
        ]


def steps_from(session: ControlSessionClient, sequence: int, number: int) -> list[pb.StepRecord]:
    """So many step records from this micro-batch on, once they are there."""
    session.wait(lambda s: sum(step.sequence >= sequence for step in s.steps) >= number)
    return [step for step in session.steps if step.sequence >= sequence]


def test_hello_describes_the_engine(client: ControlClient) -> None:
    hello = client.watch().hello
    assert hello is not None
    assert hello.engine_name == "pipelineserve-torch"
    assert (hello.num_stages, hello.num_slots) == (NUM_STAGES, NUM_STAGES)
    assert (hello.static_chunk_tokens, hello.max_chunk_tokens) == (
        STATIC_CHUNK_TOKENS,
        MAX_CHUNK_TOKENS,
    )
    assert hello.kv_tokens % hello.block_tokens == 0


def test_records_add_up_with_what_was_served(server: EngineServer, client: ControlClient) -> None:
    session = client.watch()
    with ThreadPoolExecutor(6) as threads:
        prompts = [f"{index} " * (10 + 20 * index) for index in range(6)]
        usages = [
            answer["usage"]
            for answer in threads.map(lambda prompt: complete(server, prompt, 12), prompts)
        ]
    session.wait(lambda s: len(s.requests) == len(usages))
    idle = session.wait_snapshot(lambda snapshot: snapshot.num_running == 0)
    requests, steps = session.requests, session.steps
    assert sorted((r.num_prompt_tokens, r.num_output_tokens) for r in requests) == sorted(
        (usage["prompt_tokens"], usage["completion_tokens"]) for usage in usages
    )
    # A request's last token is never computed on; what the prefix cache had is not either.
    assert sum(step.num_tokens for step in steps) == sum(
        usage["prompt_tokens"]
        - usage["prompt_tokens_details"]["cached_tokens"]
        + usage["completion_tokens"]
        - 1
        for usage in usages
    )
    first = steps[0].sequence
    assert [step.sequence for step in steps] == list(range(first, first + len(steps)))
    assert {step.chunk_tokens for step in steps} == {STATIC_CHUNK_TOKENS}
    for step in steps:
        assert step.num_tokens <= step.chunk_tokens
        assert len(step.step_time_s) == len(step.bubble_s) == NUM_STAGES
        assert 0 < min(step.step_time_s) <= max(step.step_time_s) < step.span_s
    for request in requests:
        assert request.outcome == pb.OUTCOME_LENGTH
        assert 0 <= request.queue_wait_s < request.ttft_s < request.end_s - request.arrival_s
        assert 0 < request.tpot_s <= request.longest_gap_s
    assert (idle.num_waiting, idle.kv_free_ratio, session.batches[-1].num_lost) == (0, 1.0, 0)


def test_a_chunk_acts_from_exactly_the_micro_batch_that_was_named(
    server: EngineServer, client: ControlClient
) -> None:
    session = client.watch()
    with under_load(server):
        session.wait(lambda s: len(s.steps) > 10)
        first = session.apply(1, a_fixed_policy(32))
        steps_from(session, first, 20)
    before = [step for step in session.steps if step.sequence < first]
    after = [step for step in session.steps if step.sequence >= first]
    assert len(before) > 10
    assert {(s.chunk_tokens, s.policy_sequence) for s in before} == {(STATIC_CHUNK_TOKENS, 0)}
    assert {(s.chunk_tokens, s.policy_sequence) for s in after} == {(32, 1)}
    session.apply(2, a_fixed_policy(32, lease_s=0.05))


def predictive_policy(lease_s: float) -> pb.Policy:
    """All that a policy can hold: predicted chunks, an order, holding."""
    model = line_model(seconds_per_token=1e-3, base_s=0.1)
    predictive = Predictive(model, (8, 16, 24), tpot_target_s=5.0)
    holding = Rebalance(HoldMode.TPOT_FIRST, model, (), max_gap_s=1.0, hold_budget_s=2.0)
    policy = SchedulingPolicy(predictive, Ageing(0.01), holding)
    return encode_policy(LeasedPolicy(policy, lease_s))


def test_a_predictive_policy_is_evaluated_for_each_micro_batch(
    server: EngineServer, client: ControlClient
) -> None:
    session = client.watch()
    first = session.apply(1, predictive_policy(lease_s=60.0))
    usage = complete(server, "a rather long prompt " * 20, 30)["usage"]
    session.wait(lambda s: bool(s.requests))
    steps = steps_from(session, first, 30)
    assert {step.policy_sequence for step in steps} == {1}
    assert {step.chunk_tokens for step in steps} <= {8, 16, 24}
    assert steps[0].chunk_tokens == 24
    assert steps[0].chunk_reason == "largest_safe_chunk"
    assert steps[-1].chunk_reason == "no_prompt_waits"
    assert usage["completion_tokens"] == 30
    session.apply(2, predictive_policy(lease_s=0.05))


def test_the_static_chunk_comes_back_when_the_lease_ends(
    server: EngineServer, client: ControlClient
) -> None:
    session = client.watch()
    lapses = server.metrics().value(metrics.POLICY_LAPSES)
    with under_load(server):
        # Under way, or the lease could end before any micro-batch.
        session.wait(lambda s: bool(s.steps))
        first = session.apply(1, a_fixed_policy(24, lease_s=0.3))
        session.wait(lambda s: any(x.sequence > first and not x.policy_sequence for x in s.steps))
    after = [step for step in session.steps if step.sequence >= first]
    forces = [step.policy_sequence for step in after]
    assert forces == sorted(forces, reverse=True), "it came back once and for good"
    assert {(s.chunk_tokens, s.policy_sequence) for s in after} == {
        (24, 1),
        (STATIC_CHUNK_TOKENS, 0),
    }
    assert session.wait_snapshot(lambda snapshot: not snapshot.lease_left_s)
    assert server.metrics().value(metrics.POLICY_LAPSES) == lapses + 1


def test_a_restarted_controller_takes_over_and_the_old_one_is_refused(
    client: ControlClient, server: EngineServer
) -> None:
    old, new = client.watch("old"), client.watch("new")
    assert new.epoch > old.epoch
    code, text = refused(lambda: old.apply(1, a_fixed_policy(16)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert str(new.epoch) in text
    first = new.apply(1, a_fixed_policy(32))
    complete(server, "a few steps", 5)
    assert new.apply(1, a_fixed_policy(64)) == first
    new.apply(3, a_fixed_policy(32, lease_s=0.05))
    code, text = refused(lambda: new.apply(2, a_fixed_policy(16)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "sequence: expected above 3" in text
    old.wait_snapshot(lambda _: True)  # it is still told what happens


def test_two_watchers_are_told_the_same(server: EngineServer, client: ControlClient) -> None:
    one, two = client.watch("one"), client.watch("two")
    complete(server, "something to tell", 10)
    for session in (one, two):
        session.wait(lambda s: bool(s.requests))
    assert list(one.steps) == list(two.steps)
    assert list(one.requests) == list(two.requests)


# Malformed policies

BREAKS: list[tuple[str, Callable[[pb.ApplyRequest, random.Random], object]]] = [
    ("sequence", lambda r, _: setattr(r, "sequence", 0)),
    ("policy.lease_s", lambda r, c: setattr(r.policy, "lease_s", c.choice((-1, 0, 1e9)))),
    ("policy.lease_s", lambda r, _: setattr(r.policy, "lease_s", float("nan"))),
    ("policy.chunking", lambda r, _: r.policy.ClearField("predictive")),
    ("policy.model", lambda r, _: r.policy.ClearField("model")),
    ("policy.model", lambda r, c: r.policy.model.tokens.append(c.randrange(4096))),
    ("policy.model", lambda r, _: r.policy.model.times_s.extend([1.0] * 5000)),
    ("policy.model", lambda r, _: setattr(r.policy.model, "table_ratio", float("-inf"))),
    ("policy.model", lambda r, c: setattr(r.policy.model, "past_prefill_s", -c.random() - 1e-9)),
    ("policy.model", lambda r, _: setattr(r.policy.model, "spread_ratio", float("nan"))),
    ("predictive.candidates", lambda r, c: r.policy.predictive.candidates.append(c.randrange(24))),
    ("predictive.candidates", lambda r, _: r.policy.predictive.candidates.extend(range(600))),
    ("predictive.candidates", lambda r, c: r.policy.predictive.candidates.append(
        MAX_CHUNK_TOKENS + 1 + c.randrange(1 << 20))),
    ("predictive.horizon_s", lambda r, _: setattr(r.policy.predictive, "horizon_s", 0.0)),
    ("predictive.tpot_target_s", lambda r, _: setattr(
        r.policy.predictive, "tpot_target_s", -1.0)),
    ("predictive.least_prefill_tokens", lambda r, _: setattr(
        r.policy.predictive, "least_prefill_tokens", 0)),
    ("order.kind", lambda r, c: setattr(r.policy.order, "kind", c.choice((0, 4, 1 << 30)))),
    ("order.seconds_per_token", lambda r, c: setattr(
        r.policy.order, "seconds_per_token", c.choice((-1.0, 11.0, float("inf"))))),
    ("rebalance.mode", lambda r, c: setattr(r.policy.rebalance, "mode", c.choice((0, 4, 99)))),
    ("rebalance.max_gap_s", lambda r, _: setattr(r.policy.rebalance, "max_gap_s", 0.0)),
    ("rebalance.hold_budget_s", lambda r, _: setattr(
        r.policy.rebalance, "hold_budget_s", float("nan"))),
    ("rebalance.boundaries", lambda r, _: r.policy.rebalance.boundaries.extend((9, 9))),
    ("fixed.chunk_tokens", lambda r, c: r.policy.fixed.CopyFrom(pb.FixedChunk(
        chunk_tokens=c.choice((0, MAX_CHUNK_TOKENS + 1)), reason="demand_met"))),
    ("fixed.reason", lambda r, c: r.policy.fixed.CopyFrom(pb.FixedChunk(
        chunk_tokens=8, reason="x" * c.randrange(1000)))),
]  # fmt: skip


def test_malformed_policies_are_refused_by_field_while_streams_go_on(
    server: EngineServer, client: ControlClient
) -> None:
    chance = random.Random(7)
    prompt = "The same text, whatever a controller says. "
    expected = complete(server, prompt, 200)["choices"][0]["text"]
    session = client.watch()
    invalid = server.metrics().value(metrics.POLICIES, outcome="invalid")
    with ThreadPoolExecutor(1) as threads:
        answers = [threads.submit(complete, server, prompt, 200) for _ in range(3)]
        for _ in range(NUM_MALFORMED):
            request = pb.ApplyRequest(
                epoch=session.epoch, sequence=1, policy=predictive_policy(60.0)
            )
            name, break_it = chance.choice(BREAKS)
            break_it(request, chance)
            code, text = refused(
                lambda: client.stub.Apply(request, timeout=PATIENCE_S)  # noqa: B023
            )
            assert code is grpc.StatusCode.INVALID_ARGUMENT, f"{name}: {text}"
            assert f"{name}: " in text
        texts = {answer.result()["choices"][0]["text"] for answer in answers}
    assert texts == {expected}
    assert {step.policy_sequence for step in session.steps} == {0}
    now = server.metrics()
    assert now.value(metrics.POLICIES, outcome="invalid") == invalid + NUM_MALFORMED
    assert session.apply(1, a_fixed_policy(32, lease_s=0.05))


# Ends of either side


def test_a_watcher_that_is_killed_is_forgotten(
    server: EngineServer, client: ControlClient, socket_path: Path
) -> None:
    session = client.watch()
    with subprocess.Popen(
        [sys.executable, "-c", WATCHER, f"unix:{socket_path}"], stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "hello\n"
        assert server.metrics().value(metrics.WATCHERS) == 2
        watcher.send_signal(signal.SIGKILL)
        watcher.wait()
    server.wait_metrics(lambda now: now.value(metrics.WATCHERS) == 1)
    complete(server, "the engine goes on", 5)
    session.wait(lambda s: bool(s.requests))


def test_a_policy_is_taken_while_the_stages_start_anew(
    server: EngineServer, client: ControlClient
) -> None:
    session = client.watch()
    ready = httpx.get(f"{server.url}/ready", timeout=PATIENCE_S)
    assert ready.status_code == httpx.codes.OK
    with under_load(server, 1) as streams:
        session.wait(lambda s: len(s.steps) > 5)
        os.kill(server.stage_pids[1], signal.SIGKILL)
        server.wait_for_line("starting the stages anew for 1 requests")
        first = session.apply(1, a_fixed_policy(40))
        assert "stages are ready again" not in server.log
        assert streams[0].result()["usage"]["completion_tokens"] == 300
    steps = steps_from(session, first, 1)
    assert {step.chunk_tokens for step in steps} == {40}
    assert all(
        step.chunk_tokens == STATIC_CHUNK_TOKENS for step in session.steps if step.sequence < first
    )
    session.apply(2, a_fixed_policy(lease_s=0.05))


def test_an_engine_takes_over_the_socket_of_a_killed_one_but_not_of_a_live_one(
    served_model: ServedModel, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/control.sock"
    flags = (*FLAGS, f"--control-address={address}")
    with EngineServer(served_model.folder, *flags) as first:
        first.wait_serving()
        with ControlClient(address) as client:
            epoch = client.watch().epoch
            with EngineServer(served_model.folder, *flags) as second:
                assert second.wait() == 1
                assert "another process serves there" in second.log
                assert "loading" not in second.log
            assert client.watch().epoch == epoch + 1
        first.signal(signal.SIGKILL)
    assert (tmp_path / "control.sock").exists()
    with EngineServer(served_model.folder, *flags) as later:
        later.wait_serving()
        with ControlClient(address) as client:
            assert client.watch().epoch > epoch + 1


def test_over_tcp_only_controllers_with_the_right_certificate_get_in(
    served_model: ServedModel, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path, "authority"), Authority(tmp_path, "other")
    pair, mine = authority.issue("server"), authority.issue("controller")
    flags = (
        "--control-address=127.0.0.1:0",
        f"--control-tls-certificate={pair.certificate}",
        f"--control-tls-key={pair.key}",
        f"--control-tls-client-ca={authority.pair.certificate}",
    )
    with EngineServer(served_model.folder, *FLAGS, *flags) as server:
        server.wait_serving()
        address = server._logged(r"controllers can call (127\.0\.0\.1:\d+)")
        with ControlClient(address, client_credentials(authority, mine)) as client:
            session = client.watch()
            for stranger in (None, other.issue("stranger")):
                with ControlClient(address, client_credentials(authority, stranger)) as outside:
                    code, _ = refused(lambda: outside.apply(1, 1, a_fixed_policy()))
                    assert code is grpc.StatusCode.UNAVAILABLE
            replace_pair(pair, other.issue("server-2"))
            with ControlClient(address, client_credentials(other, mine)) as renewed:
                assert renewed.watch().epoch > session.epoch
            assert session.error is None
