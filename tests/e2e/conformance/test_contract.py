"""The contract between controllers and schedulers, the same on every engine that speaks it."""

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from conformance import (
    MAX_CHUNK_TOKENS,
    NUM_STAGES,
    STATIC_CHUNK_TOKENS,
    Engine,
    end_lease,
    holding_policy,
)
from control_client import ControlClient, ControlSessionClient, a_fixed_policy
from engine_server import PATIENCE_S
from foreign_server import TEST_TIMEOUT_S
from pipelineserve import metrics
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.wire.events import decode_records
from pipelineserve.wire.policies import encode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from policy_views import line_model
from supervised_sidecar import SupervisedSidecar, a_resource

pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S)

LONG_PROMPT = [3 + index * 7 % 250 for index in range(600)]
# Watches, applies one policy with a long lease, says so, and waits to be killed.
CONTROLLER = """
import sys, grpc
from control_client import ControlClient, a_fixed_policy
with ControlClient(sys.argv[1]) as client:
    session = client.watch("doomed")
    session.apply(1, a_fixed_policy(24, lease_s=float(sys.argv[2])))
    print(session.epoch, flush=True)
    session.wait_ended()
"""


def prompts(num: int, name: str) -> list[str]:
    return [f"{name} number {index} tells of " * (1 + index % 3) for index in range(num)]


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    error = raised.value
    assert isinstance(error, grpc.Call)
    return error.code(), error.details() or ""


def steps_from(session: ControlSessionClient, sequence: int) -> list[pb.StepRecord]:
    return [step for step in session.steps if step.sequence >= sequence]


def wait_idle(session: ControlSessionClient) -> pb.Snapshot:
    return session.wait_snapshot(lambda now: now.num_running + now.num_waiting == 0)


# What is said


def test_hello_describes_the_engine(engine: Engine, session: ControlSessionClient) -> None:
    hello = session.hello
    assert hello is not None
    assert hello.engine_name == engine.kind.value
    assert hello.engine_version
    assert (hello.num_stages, hello.num_slots) == (NUM_STAGES, NUM_STAGES)
    assert hello.static_chunk_tokens == STATIC_CHUNK_TOKENS
    assert hello.max_chunk_tokens == MAX_CHUNK_TOKENS
    assert hello.kv_tokens % hello.block_tokens == 0
    assert {pb.CAPABILITY_CHUNK, pb.CAPABILITY_PREDICTIVE, pb.CAPABILITY_HOLD} <= set(
        hello.capabilities
    )
    assert not hello.inactive_reason


def test_records_add_up_with_what_was_served(engine: Engine, session: ControlSessionClient) -> None:
    with ThreadPoolExecutor(4) as threads:
        texts = prompts(4, "Adding")
        usages = [a["usage"] for a in threads.map(lambda p: engine.complete(p, 12), texts)]
    session.wait(lambda s: len(s.requests) == len(usages))
    assert wait_idle(session).num_held == 0
    # A request's last token is never computed on; what the prefix cache had is not either.
    num_computed = sum(
        usage["prompt_tokens"]
        - (usage["prompt_tokens_details"] or {}).get("cached_tokens", 0)
        + usage["completion_tokens"]
        - 1
        for usage in usages
    )
    requests, steps = session.requests, session.wait_computed(num_computed)
    assert sum(step.num_tokens for step in steps) == num_computed
    assert sorted((r.num_prompt_tokens, r.num_output_tokens) for r in requests) == sorted(
        (usage["prompt_tokens"], usage["completion_tokens"]) for usage in usages
    )
    told = [decode_records(batch) for batch in session.batches]
    assert sum(batch.num_refused for batch in told) == 0
    assert session.batches[-1].num_lost == 0
    sequences = [step.sequence for step in steps]
    assert sequences == sorted(set(sequences))
    for step in steps:
        assert step.num_tokens <= step.chunk_tokens
        assert len(step.step_time_s) == len(step.bubble_s) == NUM_STAGES
        assert 0 < min(step.step_time_s) <= max(step.step_time_s) < step.span_s
    for request in requests:
        assert request.outcome == pb.OUTCOME_LENGTH
        assert 0 <= request.queue_wait_s < request.ttft_s < request.end_s - request.arrival_s
        assert 0 < request.tpot_s <= request.longest_gap_s


# Chunks


def test_a_prompt_is_cut_into_pieces_of_exactly_the_chunk(
    engine: Engine, session: ControlSessionClient
) -> None:
    for sequence, chunk_tokens in enumerate((32, 100, MAX_CHUNK_TOKENS), start=1):
        first = session.apply(sequence, a_fixed_policy(chunk_tokens))
        prompt = [(token + 11 * sequence) % 250 + 3 for token in LONG_PROMPT]
        engine.complete(prompt, 2)
        steps = session.wait_computed(len(prompt) + 1, first)
        pieces = [step.num_tokens for step in steps if not step.num_decodes]
        num_whole, rest = divmod(len(prompt), chunk_tokens)
        assert pieces == [chunk_tokens] * num_whole + [rest] * (rest > 0)
    end_lease(session, 4)


def test_decodes_count_in_a_chunk_that_prompts_fill(
    engine: Engine, session: ControlSessionClient
) -> None:
    first = session.apply(1, a_fixed_policy(40))
    with ThreadPoolExecutor(3) as threads:
        decoding = [threads.submit(engine.complete, f"Decoding {i}", 200) for i in range(2)]
        session.wait_snapshot(lambda now: now.num_decoding == 2)
        prefilled = threads.submit(engine.complete, LONG_PROMPT[::-1], 2)
        assert all(answer.result() for answer in (*decoding, prefilled))
    steps = session.wait_computed(len(LONG_PROMPT) + 1 + 2 * 199, first)
    prefilling = [step for step in steps if step.num_decodes < step.num_tokens]
    # All but each prompt's last piece, in slots with decodes and without.
    full = [step for step in prefilling if step.num_tokens == 40]
    assert len(full) >= len(LONG_PROMPT) // 40 - 2
    assert any(step.num_decodes for step in full)
    assert all(step.num_tokens <= 40 for step in prefilling)
    end_lease(session, 2)


def test_a_chunk_acts_from_exactly_the_micro_batch_that_was_named(
    engine: Engine, session: ControlSessionClient
) -> None:
    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(engine.complete, f"Load {i}", 200) for i in range(2)]
        session.wait(lambda s: len(s.steps) > 10)
        first = session.apply(1, a_fixed_policy(32))
        session.wait(lambda s: len(steps_from(s, first)) > 20)
        assert all(answer.result() for answer in answers)
    before = [step for step in session.steps if step.sequence < first]
    assert len(before) > 10
    assert {(s.chunk_tokens, s.policy_sequence) for s in before} == {(STATIC_CHUNK_TOKENS, 0)}
    assert {(s.chunk_tokens, s.policy_sequence) for s in steps_from(session, first)} == {(32, 1)}
    # A record is complete only if every stage has run the same tokens with the same chunk.
    assert all(min(step.step_time_s) > 0 for step in session.steps)
    end_lease(session, 2)


def test_no_text_changes_whatever_chunks_are_asked_for(
    engine: Engine, session: ControlSessionClient
) -> None:
    texts = prompts(6, "Unchanged")
    expected = engine.texts(texts, 60)
    chance = random.Random(3)
    with ThreadPoolExecutor(1) as threads:
        answers = threads.submit(engine.texts, texts, 60)
        sequence = 0
        while not answers.done():
            sequence += 1
            session.apply(sequence, a_fixed_policy(chance.randrange(1, MAX_CHUNK_TOKENS)))
            session.wait_snapshot(lambda _: True)
        assert answers.result() == expected
    assert len({step.chunk_tokens for step in session.steps}) > 3
    end_lease(session, sequence + 1)


def test_a_predictive_policy_is_evaluated_for_each_micro_batch(
    engine: Engine, session: ControlSessionClient
) -> None:
    model = line_model(seconds_per_token=1e-3, base_s=0.1)
    predictive = Predictive(model, (8, 16, 24), tpot_target_s=5.0)
    policy = encode_policy(LeasedPolicy(SchedulingPolicy(predictive), lease_s=60.0))
    first = session.apply(1, policy)
    engine.complete(LONG_PROMPT[5:400], 30)
    steps = session.wait_computed(395 + 29, first)
    assert {step.policy_sequence for step in steps} == {1}
    assert {step.chunk_tokens for step in steps} <= {8, 16, 24}
    assert (steps[0].chunk_tokens, steps[0].chunk_reason) == (24, "largest_safe_chunk")
    assert steps[-1].chunk_reason == "no_prompt_waits"
    end_lease(session, 2)


def test_a_policy_out_of_range_is_refused_and_changes_nothing(
    engine: Engine, session: ControlSessionClient
) -> None:
    for chunk_tokens in (0, MAX_CHUNK_TOKENS + 1):
        policy = a_fixed_policy(32)
        policy.fixed.chunk_tokens = chunk_tokens
        code, text = refused(lambda: session.apply(1, policy))  # noqa: B023
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "policy.fixed.chunk_tokens: expected 1 to 256" in text
    engine.complete("Nothing happened", 5)
    steps = session.wait_computed(5)
    assert {step.chunk_tokens for step in steps} == {STATIC_CHUNK_TOKENS}


# Leases and sessions


def test_the_static_chunk_comes_back_when_the_lease_ends(
    engine: Engine, session: ControlSessionClient
) -> None:
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(engine.complete, "Lapsing", 300)
        session.wait(lambda s: bool(s.steps))
        first = session.apply(1, a_fixed_policy(24, lease_s=0.3))
        session.wait(lambda s: any(not x.policy_sequence for x in steps_from(s, first)))
        assert answer.result()
    after = steps_from(session, first)
    forces = [step.policy_sequence for step in after]
    assert forces == sorted(forces, reverse=True), "it came back once and for good"
    found = {(s.chunk_tokens, s.policy_sequence) for s in after}
    assert found == {(24, 1), (STATIC_CHUNK_TOKENS, 0)}


def test_a_controller_that_is_killed_costs_nothing_and_its_successor_is_obeyed(
    engine: Engine,
) -> None:
    engine.wait_free()
    with (
        subprocess.Popen(
            [sys.executable, "-c", CONTROLLER, engine.address, "2"],
            stdout=subprocess.PIPE,
            text=True,
            env=path_of_this_process(),
        ) as doomed,
        ThreadPoolExecutor(1) as threads,
    ):
        assert doomed.stdout is not None
        epoch = int(doomed.stdout.readline())
        answer = threads.submit(engine.complete, "Orphaned", 200)
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        with ControlClient(engine.address) as client:
            session = client.watch("successor")
            assert session.epoch > epoch
            session.wait_snapshot(lambda now: not now.policy_sequence)
            first = session.apply(1, a_fixed_policy(32))
            engine.complete("Adopted", 5)
            assert answer.result()
            session.wait(lambda s: len(s.requests) == 2)
            assert {s.chunk_tokens for s in session.wait_computed(5, first)} == {32}
            end_lease(session, 2)


def test_a_restarted_controller_takes_over_and_the_old_one_is_refused(engine: Engine) -> None:
    with engine.client() as client:
        old, new = client.watch("old"), client.watch("new")
        assert new.epoch > old.epoch
        code, text = refused(lambda: old.apply(1, a_fixed_policy(16)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert str(new.epoch) in text
        first = new.apply(1, a_fixed_policy(32))
        assert new.apply(1, a_fixed_policy(64)) == first
        new.apply(3, a_fixed_policy(32))
        code, text = refused(lambda: new.apply(2, a_fixed_policy(16)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "sequence: expected above 3" in text
        end_lease(new, 4)


# Holding


def test_decodes_are_held_and_released_and_no_text_changes(
    engine: Engine, session: ControlSessionClient
) -> None:
    texts = prompts(10, "Holding")
    expected = engine.texts(texts, 100)
    session.apply(1, holding_policy(max_gap_s=0.5))
    assert engine.texts(texts, 100) == expected
    session.wait(lambda s: len(s.requests) == 2 * len(texts))
    assert max(batch.snapshot.num_held for batch in session.batches) > 0
    assert max(request.held_s for request in session.requests) > 0
    assert wait_idle(session).num_held == 0
    end_lease(session, 2)


def test_who_is_held_comes_back_when_the_lease_ends(
    engine: Engine, session: ControlSessionClient
) -> None:
    texts = prompts(10, "Returning")
    expected = engine.texts(texts, 100)
    # Nobody would be released for a gap before this test gives up.
    session.apply(1, holding_policy(max_gap_s=2.0 * PATIENCE_S))
    with ThreadPoolExecutor(1) as threads:
        answers = threads.submit(engine.texts, texts, 100)
        session.wait_snapshot(lambda now: now.num_held > 0)
        session.apply(2, holding_policy(max_gap_s=2.0 * PATIENCE_S, lease_s=0.05))
        session.wait_snapshot(lambda now: not now.policy_sequence)
        session.wait_snapshot(lambda now: not now.num_held)
        assert answers.result() == expected


def test_a_pipeline_that_holds_its_last_requests_lets_them_go(
    engine: Engine, session: ControlSessionClient
) -> None:
    session.apply(1, holding_policy(max_gap_s=2.0 * PATIENCE_S))
    # Long enough for all to decode at once although they do not arrive at once.
    lengths = [150, 150, 150, 150, 150, 150, 150, 150, 300, 300]
    with ThreadPoolExecutor(len(lengths)) as threads:
        texts = prompts(len(lengths), "Lasting")
        assert all(threads.map(engine.complete, texts, lengths))
    session.wait(lambda s: len(s.requests) == len(lengths))
    assert max(batch.snapshot.num_held for batch in session.batches) > 0
    assert wait_idle(session).kv_free_ratio == 1.0
    end_lease(session, 2)


def test_requests_can_be_aborted_while_they_are_held(
    engine: Engine, session: ControlSessionClient
) -> None:
    session.apply(1, holding_policy(max_gap_s=2.0 * PATIENCE_S))
    texts = prompts(10, "Aborted")

    are_held = threading.Event()
    with ThreadPoolExecutor(len(texts)) as threads:
        # Long enough to be held; longer ones would not all fit into KV at once.
        hung_up = [threads.submit(engine.abandon, text, 400, are_held.wait) for text in texts]
        try:
            session.wait_snapshot(lambda now: now.num_held > 0)
        finally:
            are_held.set()
        for future in hung_up:
            future.result()
    session.wait(lambda s: len(s.requests) == len(texts))
    assert {request.outcome for request in session.requests} == {pb.OUTCOME_CANCELLED}
    idle = wait_idle(session)
    assert (idle.num_held, idle.kv_free_ratio) == (0, 1.0)
    engine.complete("It serves on", 5)
    end_lease(session, 2)


def test_metrics_tell_of_control(engine: Engine, session: ControlSessionClient) -> None:
    before = engine.read_metrics()
    assert before.value(metrics.CONTROL_ACTIVE) == 1
    assert before.value(metrics.WATCHERS) == 1
    session.apply(1, a_fixed_policy(32))
    applied = engine.read_metrics().value(metrics.POLICIES, outcome="applied")
    assert applied == before.value(metrics.POLICIES, outcome="applied") + 1
    end_lease(session, 2)


def test_the_real_sidecar_steers_a_mixed_load(engine: Engine, tmp_path: Path) -> None:
    engine.wait_free()
    # A static chunk in objectives is the engine's from then on, so it is the one that it has.
    resource = a_resource(policy="Predictive", static_tokens=STATIC_CHUNK_TOKENS, tpot_ms=60_000)
    texts = [*prompts(6, "Steered"), "A long story. " * 60]
    expected = engine.texts(texts, 40)
    with (
        ControlClient(engine.address) as client,
        SupervisedSidecar(tmp_path / "sidecar", engine.address, resource) as sidecar,
    ):
        observer = client.observe()
        while not learned(observer):
            assert engine.texts(texts, 40) == expected
        state = sidecar.wait_state(lambda now: now["control"]["is_effective"])
        assert state["connection"]["num_sessions"] == 1
        assert "Traceback" not in sidecar.log
    engine.wait_free()


def learned(observer: ControlSessionClient) -> bool:
    """Whether a micro-batch was composed by a model that the sidecar has learned meanwhile."""
    predicted = {"demand_met", "backlog_fits", "largest_safe_chunk", "no_prompt_waits"}
    return any(s.policy_sequence and s.chunk_reason in predicted for s in observer.steps)


def path_of_this_process() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(path for path in sys.path if path)}
