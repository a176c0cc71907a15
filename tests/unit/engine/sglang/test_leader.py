"""Stage 0 decides for all ranks, tells what happens, and never ends SGLang by a mistake of ours."""

from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from control_client import a_fixed_policy
from pipelineserve import metrics
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.wire.policies import decode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_engine.addon.ledger import StageReport
from pipelineserve_engine.addon.mirror import EngineSizes
from pipelineserve_engine.addon.serving import control_parts
from pipelineserve_engine.control.desk import Applied
from pipelineserve_engine.control.questions import Questions
from pipelineserve_engine.sglang.leader import Leader
from pipelineserve_engine.sglang.orders import TurnOrder
from pipelineserve_engine.sglang.stage import StageSide
from pipelineserve_engine.telemetry import Telemetry
from sglang_fakes import EXTEND, FakeBatch, FakeRequest, FakeSampling, FakeScheduler

SIZES = EngineSizes(2, 2, 256, 1, 1, 1000, is_mixed=True, can_hold=True, ends_lone_decodes=True)
STATIC = 64


class Process:
    """Stage 0's scheduling thread, turn by turn."""

    def __init__(self) -> None:
        self.stage = StageSide(
            page_tokens=1,
            max_chunk_tokens=256,
            num_slots=2,
            own_sampling=lambda batch: FakeSampling(batch.rids),
        )
        self.scheduler = FakeScheduler()
        self.mistakes: list[str] = []
        self.now_s = 10.0
        self.questions = Questions()
        parts = control_parts(
            STATIC,
            "SGLang",
            SIZES,
            lambda: self.stage.turn + 1,
            session=ControlSession(1),
            telemetry=Telemetry(CollectorRegistry(), metrics.CONTROL_OF_ENGINE),
            questions=self.questions,
            on_mistake=self.mistakes.append,
        )
        self.mirror, self.desk = parts.mirror, parts.desk
        self.leader = Leader(parts, self.stage)
        self.opened = self.desk.open("test", self.now_s)

    def begin(self, *reports: StageReport, received: Sequence[Any] = ()) -> TurnOrder | None:
        """A turn begins; the order for it."""
        self.now_s += 0.1
        order = self.leader.order(self.scheduler, received, reports, self.now_s)
        self.stage.begin_turn([order] if order else [])
        return order

    def run(self, batch: FakeBatch) -> None:
        """The present turn's micro-batch is launched."""
        self.scheduler.mbs[self.stage.slot_index] = batch
        self.leader.on_composed(batch, self.now_s)

    def come_back(self, batch: FakeBatch) -> None:
        """It has come back with a token for each request."""
        for request in batch.reqs:
            request.output_ids.append(7)
        self.leader.on_completed(self.scheduler, batch, batch.reqs, self.now_s + 0.05)

    def told(self) -> pb.Records:
        """All that was told since the last call."""
        assert self.opened is not None
        self.now_s += 1.0
        self.desk.turn(self.now_s)
        everything = pb.Records()
        while self.opened.watcher._pending:
            event = self.opened.watcher.next_event()
            assert event is not None
            everything.MergeFrom(event.records)
        return everything


def a_report(process: Process, stage_index: int, num_tokens: int) -> StageReport:
    return StageReport(stage_index, process.stage.turn, num_tokens, STATIC, 1.0, 1.5)


def a_prefill(request: FakeRequest) -> FakeBatch:
    return FakeBatch([request], EXTEND, [request.num_prompt], [0])


def test_the_static_chunk_is_ordered_at_once_and_only_once() -> None:
    process = Process()
    assert process.begin() == TurnOrder(0, STATIC)
    assert process.begin() is None


def test_a_policy_is_taken_in_and_ordered_at_the_turn_that_was_named() -> None:
    process = Process()
    process.begin()
    leased = decode_policy(a_fixed_policy(32), max_chunk_tokens=256)
    reply = process.questions.ask(lambda now_s: process.desk.apply(1, 1, leased, now_s))
    assert process.begin() == TurnOrder(1, 32)
    assert reply.result(0) == Applied(1)


def test_a_micro_batch_is_told_once_every_stage_has_run_it() -> None:
    process, request = Process(), FakeRequest("a")
    process.begin()
    process.leader.on_accepted(request, process.now_s)
    batch = a_prefill(request)
    process.run(batch)
    own = a_report(process, 0, 10)
    other = own._replace(stage_index=1, end_s=1.25)
    process.begin(own)
    process.come_back(batch)
    assert not process.told().steps
    process.begin(other)
    (step,) = process.told().steps
    assert (step.sequence, step.slot_index) == (0, 0)
    assert (step.num_tokens, step.num_decodes, step.chunk_tokens) == (10, 0, STATIC)
    assert list(step.step_time_s) == [0.5, 0.25]


def test_a_request_is_told_when_it_ends() -> None:
    process, request = Process(), FakeRequest("a")
    process.begin()
    process.leader.on_accepted(request, process.now_s)
    batch = a_prefill(request)
    process.run(batch)
    request.finish_type = "length"
    process.come_back(batch)
    (record,) = process.told().requests
    assert record.outcome == pb.OUTCOME_LENGTH
    assert (record.num_prompt_tokens, record.num_output_tokens) == (10, 1)


def test_a_health_check_is_nobodys_request() -> None:
    process, check = Process(), FakeRequest("HEALTH_CHECK_1f", num_prompt=1)
    process.begin()
    process.leader.on_accepted(check, process.now_s)
    assert process.told().snapshot.num_waiting == 0
    batch = a_prefill(check)
    process.run(batch)
    check.finish_type = "length"
    process.come_back(batch)
    assert list(process.told().requests) == []
    assert not process.mistakes


def test_a_request_that_is_aborted_in_the_queue_is_told() -> None:
    process, request = Process(), FakeRequest("a")
    process.begin()
    process.leader.on_accepted(request, process.now_s)
    assert process.told().snapshot.num_waiting == 1
    process.leader.on_aborted(request, process.now_s)
    (record,) = process.told().requests
    assert record.outcome == pb.OUTCOME_CANCELLED


def test_a_request_that_comes_to_the_queue_again_is_the_same() -> None:
    process, request = Process(), FakeRequest("a")
    process.begin()
    for _ in range(2):
        process.leader.on_accepted(request, process.now_s)
    assert process.told().snapshot.num_waiting == 1


# Mistakes


def failing(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(process.mirror, "plan", fail)


def test_after_a_mistake_the_static_chunk_holds_and_nobody_stays_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process()
    batch = FakeBatch([FakeRequest("a"), FakeRequest("b")])
    process.begin()
    process.stage.begin_turn([TurnOrder(1, 32, held=("a",))])
    process.stage.compose(process.scheduler, batch)
    failing(process, monkeypatch)
    assert process.begin() == TurnOrder(2, STATIC, released=("a",))
    assert process.stage.compose(process.scheduler, batch).rids == ["b", "a"]
    assert process.begin() is None
    assert process.mistakes == ["the add-on made a mistake; SGLang's log has it"]


def test_after_a_mistake_nothing_is_followed_and_nobody_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process()
    failing(process, monkeypatch)
    waiting = process.questions.ask(lambda now_s: now_s)
    monkeypatch.setattr(process.questions, "answer", lambda _: None)
    process.begin()
    assert waiting.exception(0) is not None
    process.leader.on_accepted(FakeRequest("a"), 1.0)
    process.leader.on_composed(FakeBatch([]), 1.0)
    process.leader.on_aborted(FakeRequest("a"), 1.0)
    assert len(process.mistakes) == 1


def test_stages_that_run_different_tokens_are_a_mistake() -> None:
    process, request = Process(), FakeRequest("a")
    process.begin()
    process.leader.on_accepted(request, process.now_s)
    process.run(a_prefill(request))
    process.begin(a_report(process, 1, num_tokens=9))
    assert process.mistakes
