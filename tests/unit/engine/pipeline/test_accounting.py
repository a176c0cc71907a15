"""Requests that do not add up are counted, named once with their numbers, and not left waiting."""

import logging
from dataclasses import replace

import pytest

from pipelineserve import metrics
from pipelineserve.scheduler.messages import Census
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.accounting import Account
from scripted_engine import ScriptedEngine, a_request, a_scripted_engine

SOUND = Account(
    census=Census(arrived=9, rejected=1, waiting=2, running=1, finished=3, cancelled=1, failed=1),
    num_lost=0,
    num_sampled=3,
    num_clients=3,
    is_idle=False,
)


def test_what_adds_up_is_no_fault() -> None:
    assert SOUND.fault == ""


@pytest.mark.parametrize(
    ("account", "part"),
    [
        (replace(SOUND, census=replace(SOUND.census, arrived=10)), "arrived=10, rejected=1"),
        (replace(SOUND, num_lost=1), "1 live requests are neither queued, running nor in flight"),
        (replace(SOUND, num_sampled=2), "3 requests are live, but sampling is kept for 2"),
        (replace(SOUND, num_clients=4), "3 requests are live, but 4 clients wait"),
        (replace(SOUND, is_idle=True), "none of them can be given to the stages"),
    ],
)
def test_each_fault_is_named_with_its_numbers(account: Account, part: str) -> None:
    assert part in account.fault
    assert ";" not in account.fault


def faults(engine: ScriptedEngine) -> float:
    return engine.metric(metrics.ACCOUNTING_FAULTS)


def test_an_audit_of_a_sound_engine_says_nothing_in_any_state() -> None:
    engine = a_scripted_engine(max_running_requests=1)
    for name in ("a", "b"):
        engine.core.submit(a_request(name), 0.0)
    assert engine.core.audit(2, 0.0) == []
    engine.core.fill_slots(0.0)
    assert engine.core.audit(2, 0.0) == []
    engine.core.cancel("a", 0.0)
    assert engine.core.audit(1, 0.0) == []
    assert faults(engine) == 0


def test_a_fault_is_counted_each_time_and_logged_once_until_all_is_well_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = a_scripted_engine()
    engine.core.submit(a_request("a"), 0.0)
    with caplog.at_level(logging.ERROR):
        for num_clients in (0, 0, 1, 0):
            engine.core.audit(num_clients, 0.0)
    assert faults(engine) == 3
    assert (
        caplog.messages == ["requests do not add up: 1 requests are live, but 0 clients wait"] * 2
    )


def test_a_request_that_the_scheduler_has_lost_ends_with_an_error_and_the_others_go_on() -> None:
    engine = a_scripted_engine()
    for name in ("a", "b"):
        engine.core.submit(a_request(name), 0.0)
    engine.core.fill_slots(0.0)
    command = engine.executor.next_command()
    engine.executor.answer(command)
    for report in engine.executor.receive(0.0):
        engine.core.absorb(report, 0.0)
    decodes = engine.core.scheduler._decodes
    decodes.issue([r for r in decodes.first_ready(2) if r.request_id == "a"])
    assert engine.core.scheduler.lost() == ("a",)
    (output,) = engine.core.audit(2, 1.0)
    assert (output.request_id, output.finish) == ("a", FinishReason.ERROR)
    assert output.event.detail == "the engine has lost the request"
    assert engine.metric(metrics.REQUESTS, outcome="error") == 1
    assert engine.core.audit(1, 1.0) == []
    engine.core.fill_slots(1.0)
    assert [len(c.pieces) for c in (engine.executor.next_command(),)] == [1]


def test_a_request_that_has_left_the_queue_unseen_is_lost_too() -> None:
    engine = a_scripted_engine()
    engine.core.submit(a_request("a"), 0.0)
    request = engine.core.scheduler._live["a"]
    engine.core.scheduler._waiting.remove(request)
    assert engine.core.scheduler.lost() == ("a",)


def test_work_that_cannot_be_given_to_the_stages_is_a_fault() -> None:
    engine = a_scripted_engine()
    engine.core.submit(a_request("a"), 0.0)
    pool = engine.core.scheduler.kv.pool
    pool._blank.take_run(pool.num_blocks)
    engine.core.fill_slots(0.0)
    engine.core.audit(1, 0.0)
    assert faults(engine) == 1
