"""What only a real SGLang has: hooks that may not fit, its own scheduling modes, KV taken back."""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest

from conformance import (
    Engine,
    assert_sound,
    completion_body,
    end_lease,
    holding_policy,
    sglang_engine,
)
from control_client import ControlClient, a_fixed_policy
from engine_server import PATIENCE_S
from foreign_server import TEST_TIMEOUT_S
from pipelineserve import metrics
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from served_model import ServedModel
from sglang_server import sglang_python

pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S)

# Room for six of the twelve requests of the test that runs out of it.
FEW_KV_TOKENS = 2048
PAGE_TOKENS = 16
OTHER_MODE = (
    *("--pp-async-batch-depth=1", f"--page-size={PAGE_TOKENS}"),
    f"--max-total-tokens={FEW_KV_TOKENS}",
)


@pytest.fixture(scope="module")
def engine(untied_model: ServedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Prompts travel without decodes, three slots for two stages, pages, and little KV."""
    socket_path = tmp_path_factory.mktemp("mode") / "control.sock"
    with sglang_engine(untied_model.folder, socket_path, *OTHER_MODE) as running:
        yield running
        assert_sound(running)


def test_the_installed_sglang_has_every_hook_target_as_expected() -> None:
    command = [str(sglang_python()), "-m", "pipelineserve_engine.sglang.targets"]
    checked = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SGLANG_PLATFORM": "reference"},
    )
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr


def test_pieces_are_whole_pages_and_prompts_travel_alone(engine: Engine) -> None:
    with engine.client() as client:
        session = client.watch()
        assert session.hello is not None
        assert (session.hello.num_slots, session.hello.block_tokens) == (3, PAGE_TOKENS)
        first = session.apply(1, a_fixed_policy(40))
        engine.complete([3 + index * 11 % 240 for index in range(200)], 3)
        steps = session.wait_computed(200 + 2, first)
        pieces = [step.num_tokens for step in steps if not step.num_decodes]
        assert pieces == [32] * 6 + [8]
        assert all(s.num_decodes in (0, s.num_tokens) for s in session.steps)
        end_lease(session, 2)


def test_held_decodes_survive_kv_that_runs_out(engine: Engine) -> None:
    prompts = [f"Pressure {index} " + "rises and " * 20 for index in range(12)]
    # Four at a time have room.
    fours = [engine.texts(prompts[first : first + 4], 120) for first in (0, 4, 8)]
    expected = [text for four in fours for text in four]
    with engine.client() as client:
        session = client.watch()
        session.apply(1, holding_policy(max_gap_s=1.0, most_decodes=2))
        assert engine.texts(prompts, 120) == expected
        session.wait(lambda s: len(s.requests) == len(prompts))
        assert max(request.held_s for request in session.requests) > 0
        assert max(request.num_requeues for request in session.requests) > 0
        idle = session.wait_snapshot(lambda now: not now.num_running + now.num_waiting)
        assert (idle.num_held, idle.kv_free_ratio) == (0, 1.0)
        end_lease(session, 2)


@pytest.mark.parametrize(
    ("policy", "firsts"),
    [
        (a_fixed_policy(64), (10, 11, 12)),
        (holding_policy(max_gap_s=1.0, most_decodes=2), (13, 14, 15)),
    ],
    ids=["without holding", "holding"],
)
def test_who_is_alone_in_its_slot_when_kv_runs_out_is_not_lost(
    engine: Engine, policy: pb.Policy, firsts: tuple[int, ...]
) -> None:
    # Seven pieces each and none cached, so each ends in a slot of its own; they outgrow the KV.
    prompts = [[first + index * 11 % 200 for index in range(7 * 64)] for first in firsts]
    num_tokens = 300
    body = {**completion_body("", num_tokens), "prompt": prompts}
    with engine.client() as client:
        session = client.watch()
        session.apply(1, policy)
        answer = httpx.post(f"{engine.url}/v1/completions", json=body, timeout=PATIENCE_S)
        # By itself SGLang ends one of them with an error.
        assert answer.is_success, answer.text
        assert answer.json()["usage"]["completion_tokens"] == len(prompts) * num_tokens
        session.wait(lambda s: len(s.requests) == len(prompts))
        assert sum(request.num_requeues for request in session.requests) > 0
        assert max(request.held_s for request in session.requests) > 0
        idle = session.wait_snapshot(lambda now: not now.num_running + now.num_waiting)
        assert (idle.num_held, idle.kv_free_ratio) == (0, 1.0)
        end_lease(session, 2)


def test_requests_with_penalties_run_beside_held_ones(engine: Engine) -> None:
    penalised = {**completion_body("Penalised", 60), "frequency_penalty": 0.5}

    def ask() -> str:
        answer = httpx.post(f"{engine.url}/v1/completions", json=penalised, timeout=PATIENCE_S)
        text: str = answer.json()["choices"][0]["text"]
        return text

    expected = ask()
    with engine.client() as client, ThreadPoolExecutor(2) as threads:
        session = client.watch()
        session.apply(1, holding_policy(max_gap_s=0.5, most_decodes=2))
        # Five for each slot, of which one is held where nobody is penalised.
        others = threads.submit(engine.texts, [f"Beside {index}" for index in range(14)], 60)
        assert [ask() for _ in range(2)] == [expected] * 2
        assert others.result()
        session.wait(lambda s: len(s.requests) == 16)
        assert max(request.held_s for request in session.requests) > 0
        end_lease(session, 2)


def test_nothing_is_flushed_while_somebody_is_held(engine: Engine) -> None:
    with engine.client() as client, ThreadPoolExecutor(1) as threads:
        session = client.watch()
        session.apply(1, holding_policy(max_gap_s=2.0 * PATIENCE_S, most_decodes=2))
        texts = [f"Flushed {index}" for index in range(12)]
        answers = threads.submit(engine.texts, texts, 100)
        session.wait_snapshot(lambda now: now.num_held > 0)
        assert not httpx.post(f"{engine.url}/flush_cache", timeout=PATIENCE_S).is_success
        assert len(answers.result()) == len(texts)
        session.wait_snapshot(lambda now: not now.num_running)
        assert httpx.post(f"{engine.url}/flush_cache", timeout=PATIENCE_S).is_success
        end_lease(session, 2)


@pytest.mark.parametrize(
    ("layout", "num_stages"),
    [(("--pp-size=3",), 3), (("--pp-size=2", "--tp-size=2"), 2)],
    ids=["three stages", "two stages of two ranks"],
)
def test_every_rank_obeys_in_other_layouts(
    layout: tuple[str, ...],
    num_stages: int,
    untied_model: ServedModel,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    socket_path = tmp_path_factory.mktemp("layout") / "control.sock"
    flags = ("--enable-mixed-chunk", "--max-total-tokens=8192", *layout)
    # Five per slot, of which one is held.
    texts = [f"Laid out {index} " * (1 + index % 3) for index in range(5 * num_stages)]
    with sglang_engine(untied_model.folder, socket_path, *flags) as engine:
        expected = engine.texts(texts, 60)
        with engine.client() as client:
            session = client.watch()
            assert session.hello is not None
            assert not session.hello.inactive_reason
            assert (session.hello.num_stages, session.hello.num_slots) == (num_stages, num_stages)
            first = session.apply(1, a_fixed_policy(40))
            engine.complete([3 + index * 11 % 240 for index in range(200)], 3)
            steps = session.wait_computed(200 + 2, first)
            # A record is complete only if every stage has run the same tokens with the same chunk.
            assert [step.num_tokens for step in steps] == [40] * 5 + [1, 1]
            assert all(len(step.step_time_s) == num_stages for step in steps)
            session.apply(2, holding_policy(max_gap_s=0.5))
            assert engine.texts(texts, 60) == expected
            session.wait(lambda s: len(s.requests) == len(texts) + 1)
            assert max(request.held_s for request in session.requests) > 0
        assert_sound(engine)


def test_an_sglang_that_is_not_as_expected_serves_on_uncontrolled_and_says_so(
    untied_model: ServedModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    socket_path = tmp_path_factory.mktemp("broken") / "control.sock"
    broken = {"BREAK_ADDON_TARGET": "1"}
    with (
        sglang_engine(untied_model.folder, socket_path, environ=broken) as engine,
        ControlClient(engine.address) as client,
    ):
        session = client.watch()
        hello = session.hello
        assert hello is not None
        assert list(hello.capabilities) == []
        assert "get_new_batch_prefill: expected (self, running_batch), got" in hello.inactive_reason
        with pytest.raises(grpc.RpcError) as raised:
            session.apply(1, a_fixed_policy(32))
        assert isinstance(raised.value, grpc.Call)
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert hello.inactive_reason in (raised.value.details() or "")
        assert engine.read_metrics().value(metrics.CONTROL_ACTIVE) == 0
        assert engine.complete("It serves", 10)
        assert "the add-on is inactive" in engine.log()


def test_settings_that_are_wrong_stop_the_start() -> None:
    command = [str(sglang_python()), "-m", "sglang.launch_server", "--model-path=/nowhere"]
    environ = {
        **os.environ,
        "SGLANG_PLATFORM": "reference",
        "PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS": "many",
    }
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert ended.returncode != 0
    assert "expected a number of tokens of at least 1, got many" in ended.stderr
