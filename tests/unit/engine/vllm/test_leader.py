"""Each of vLLM's turns is decided by the policy in force, told, and never ended by a mistake."""

from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from control_client import a_fixed_policy
from pipelineserve import metrics
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.policy.step_time import StepTimeModel, StepTimeTable
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.wire.policies import decode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_engine.addon.ledger import StageReport
from pipelineserve_engine.addon.mirror import EngineSizes
from pipelineserve_engine.addon.serving import control_parts
from pipelineserve_engine.control.desk import Applied
from pipelineserve_engine.control.questions import Questions
from pipelineserve_engine.telemetry import Telemetry
from pipelineserve_engine.vllm.leader import MOST_UNREPORTED_TURNS, NEVER, Leader
from pipelineserve_engine.vllm.notes import TurnNote, note_of
from vllm_fakes import MAX_CHUNK_TOKENS, FakeOutput, FakeRequest, FakeScheduler

SIZES = EngineSizes(
    2, 2, MAX_CHUNK_TOKENS, 16, 0, 8192, is_mixed=True, can_hold=True, ends_lone_decodes=False
)
STATIC = 64
STAIRS = StepTimeModel(StepTimeTable((1, 4, 5, 8, 9, 64), (0.01, 0.01, 0.02, 0.02, 0.03, 0.04)))
HOLDING = Rebalance(
    HoldMode.TPOT_FIRST,
    STAIRS,
    (4, 8),
    max_gap_s=5.0,
    hold_budget_s=20.0,
    least_kv_free_ratio=0.0,
    relaxed_kv_free_ratio=0.0,
)


class Process:
    """vLLM's scheduling thread, turn by turn, with two micro-batches in flight at most."""

    def __init__(self) -> None:
        self.scheduler = FakeScheduler()
        self.mistakes: list[str] = []
        self.reports: list[StageReport] = []
        self.held_counts: list[int] = []
        self.now_s = 10.0
        self.questions = Questions()
        telemetry = Telemetry(CollectorRegistry(), metrics.CONTROL_OF_ENGINE)
        parts = control_parts(
            STATIC,
            "vLLM",
            SIZES,
            lambda: self.leader.turn,
            session=ControlSession(1),
            telemetry=telemetry,
            questions=self.questions,
            on_mistake=self.mistakes.append,
        )
        self.parts, self.mirror, self.desk = parts, parts.mirror, parts.desk
        self.held = telemetry.gauge(metrics.REQUESTS_HELD)
        self.leader = Leader(parts, SIZES, self.take_reports, "/steps")
        self.opened = self.desk.open("test", self.now_s)
        self.sequence = 0

    def take_reports(self) -> list[StageReport]:
        """What stages have told."""
        reports, self.reports = self.reports, []
        return reports

    def arrive(self, *requests: FakeRequest) -> None:
        """These enter the queue."""
        for request in requests:
            self.scheduler.add_request(request)
            self.leader.on_accepted(request, self.now_s)

    def compose(self) -> FakeOutput:
        """A turn."""
        self.now_s += 0.1
        self.leader.compose(self.scheduler, self.now_s)
        output = self.scheduler.schedule()
        self.leader.on_composed(self.scheduler, output, self.now_s)
        return output

    def come_back(self, output: FakeOutput, *, is_reported: bool = True) -> None:
        """A micro-batch has run on both stages, and its tokens are there."""
        requests = [self.scheduler.requests[name] for name in output.num_scheduled_tokens]
        note = note_of(output)
        if note is not None and is_reported:
            self.reports += [a_report(note, stage, output) for stage in (0, 1)]
        self.scheduler.update_from_output(output, output)
        self.leader.on_completed(output, requests, self.now_s + 0.05)

    def adopt(self, policy: SchedulingPolicy) -> None:
        """A controller lends this."""
        assert self.opened is not None
        self.sequence += 1
        leased = LeasedPolicy(policy, lease_s=100.0)
        self.desk.apply(self.opened.epoch, self.sequence, leased, self.now_s)

    def told(self) -> pb.Records:
        """All that was told since the last call."""
        assert self.opened is not None
        self.now_s += 1.0
        self.leader.tick(self.now_s)
        everything = pb.Records()
        while self.opened.watcher._pending:
            event = self.opened.watcher.next_event()
            assert event is not None
            everything.MergeFrom(event.records)
        return everything


def a_report(note: TurnNote, stage_index: int, output: FakeOutput) -> StageReport:
    num_tokens = output.total_num_scheduled_tokens
    return StageReport(stage_index, note.turn, num_tokens, note.chunk_tokens, 1.0, 1.5)


def decoding(*names: str, process: Process | None = None) -> tuple[Process, list[FakeRequest]]:
    """These have had their first token."""
    process = process or Process()
    requests = [FakeRequest(name, num_prompt_tokens=4) for name in names]
    process.arrive(*requests)
    process.come_back(process.compose())
    assert all(request.num_output_tokens == 1 for request in requests)
    return process, requests


def requests_of(outputs: Sequence[FakeOutput]) -> list[set[str]]:
    return [set(output.num_scheduled_tokens) for output in outputs]


def test_the_static_chunk_holds_without_a_policy() -> None:
    process = Process()
    process.arrive(FakeRequest("a", num_prompt_tokens=100))
    outputs = [process.compose(), process.compose()]
    assert [output.total_num_scheduled_tokens for output in outputs] == [STATIC, 100 - STATIC]


def test_a_policy_is_taken_in_and_obeyed_at_the_turn_that_was_named() -> None:
    process = Process()
    process.arrive(FakeRequest("a", num_prompt_tokens=200))
    process.compose()
    leased = decode_policy(a_fixed_policy(32), max_chunk_tokens=256)
    reply = process.questions.ask(lambda now_s: process.desk.apply(1, 1, leased, now_s))
    assert process.compose().total_num_scheduled_tokens == 32
    assert reply.result(0) == Applied(1)


def test_an_idle_vllm_answers_too() -> None:
    process = Process()
    reply = process.questions.ask(lambda now_s: now_s)
    process.leader.tick(11.0)
    assert reply.result(0) == 11.0


def test_decodes_go_whatever_the_chunk_is() -> None:
    process, _ = decoding(*"abcde")
    process.adopt(SchedulingPolicy(Static(2)))
    output = process.compose()
    assert output.total_num_scheduled_tokens == 5
    process.come_back(output)
    (step,) = [s for s in process.told().steps if s.sequence == 1]
    assert (step.chunk_tokens, step.chunk_reason) == (5, "decodes_fill_chunk")


def test_a_micro_batch_is_told_with_its_pieces_once_every_stage_has_run_it() -> None:
    process, _ = decoding("a")
    process.told()
    process.arrive(FakeRequest("b", num_prompt_tokens=30))
    output = process.compose()
    process.come_back(output, is_reported=False)
    assert not process.told().steps
    note = note_of(output)
    assert note == TurnNote(1, STATIC, "/steps")
    process.reports = [a_report(note, stage, output) for stage in (0, 1)]
    (step,) = process.told().steps
    assert (step.sequence, step.slot_index) == (1, 1)
    assert (step.num_tokens, step.num_decodes, step.chunk_tokens) == (31, 1, STATIC)
    assert list(step.step_time_s) == [0.5, 0.5]
    assert (step.decode_context_tokens, step.squared_prefill_tokens) == (5, 900)


def test_a_turn_that_composes_nothing_is_a_turn_without_a_record() -> None:
    process, _ = decoding("a")
    flying, empty = process.compose(), process.compose()
    assert not empty.num_scheduled_tokens
    assert note_of(empty) is None
    process.come_back(flying)
    process.come_back(empty)
    process.come_back(process.compose())
    assert [step.sequence for step in process.told().steps] == [0, 1, 3]


def test_a_request_is_told_when_it_ends() -> None:
    process, (request,) = decoding("a")
    output = process.compose()
    request.finish = "LENGTH"
    process.come_back(output)
    (record,) = process.told().requests
    assert record.outcome == pb.OUTCOME_LENGTH
    assert (record.num_prompt_tokens, record.num_output_tokens) == (4, 2)


def test_a_request_that_is_aborted_in_the_queue_is_told() -> None:
    process = Process()
    process.arrive(FakeRequest("a"))
    assert process.told().snapshot.num_waiting == 1
    process.leader.on_ended(process.scheduler.finish_requests(["a"], "ABORT"), process.now_s)
    (record,) = process.told().requests
    assert record.outcome == pb.OUTCOME_CANCELLED


def test_who_lost_its_kv_waits_again_and_is_prefilled_with_its_output() -> None:
    process, (request, _) = decoding("a", "b")
    process.scheduler._preempt_request(request, 0.0)
    process.leader.on_preempted(request, process.now_s)
    assert process.told().snapshot.num_waiting == 1
    process.come_back(process.compose())
    (step,) = [s for s in process.told().steps if s.sequence == 1]
    assert (step.num_tokens, step.num_decodes) == (6, 1)


def test_a_request_that_goes_on_after_its_end_is_left_to_vllm() -> None:
    process = Process()
    process.arrive(FakeRequest("a", resumable=True))
    assert process.told().snapshot.num_waiting == 0
    output = process.compose()
    assert output.num_scheduled_tokens == {"a": 10}
    process.come_back(output)
    process.come_back(process.compose())
    assert [step.num_decodes for step in process.told().steps] == [0, 1]


# Holding


def holding() -> tuple[Process, list[FakeRequest]]:
    """Ten decodes, five in each slot; each slot has one too many."""
    process, first = decoding(*"abcde")
    flying = process.compose()
    later = [FakeRequest(name, num_prompt_tokens=4) for name in "fghij"]
    process.arrive(*later)
    other = process.compose()
    process.adopt(SchedulingPolicy(Static(STATIC), holding=HOLDING))
    process.come_back(flying)
    flying = process.compose()
    process.come_back(other)
    other = process.compose()
    process.come_back(flying)
    process.come_back(other)
    return process, [*first, *later]


def held_among(requests: Sequence[FakeRequest]) -> list[str]:
    return [r.request_id for r in requests if r.next_decode_eligible_step == NEVER]


def test_decodes_above_a_boundary_sit_out_and_the_others_go() -> None:
    process, requests = holding()
    held = held_among(requests)
    assert len(held) == process.mirror.num_held > 0
    assert process.held._value.get() == len(held)
    assert not set(held) & set(process.compose().num_scheduled_tokens)


def test_who_is_held_takes_nothing_of_the_chunk() -> None:
    process, requests = holding()
    process.adopt(SchedulingPolicy(Static(1), holding=HOLDING))
    output = process.compose()
    assert held_among(requests)
    note = note_of(output)
    assert note is not None
    assert note.chunk_tokens == output.total_num_scheduled_tokens


def test_when_holding_ends_everybody_goes_on() -> None:
    process, requests = holding()
    process.adopt(SchedulingPolicy(Static(STATIC)))
    outputs = [process.compose(), process.compose()]
    assert set.union(*requests_of(outputs)) == {r.request_id for r in requests}
    assert not held_among(requests)
    assert process.mirror.num_held == 0


def test_who_is_aborted_while_held_is_gone() -> None:
    process, requests = holding()
    held = held_among(requests)
    process.leader.on_ended(process.scheduler.finish_requests(held, "ABORT"), process.now_s)
    assert process.mirror.num_held == 0
    assert process.held._value.get() == 0


def test_who_loses_its_kv_while_held_is_held_no_more() -> None:
    process, requests = holding()
    (first, *_) = [r for r in requests if r.request_id in held_among(requests)]
    process.scheduler._preempt_request(first, 0.0)
    process.leader.on_preempted(first, process.now_s)
    assert first.request_id in process.compose().num_scheduled_tokens
    assert not process.mistakes


def test_requests_with_lora_are_never_held() -> None:
    process, requests = decoding(*"abcde")
    for request in requests:
        request.lora_request = object()
    process.adopt(SchedulingPolicy(Static(STATIC), holding=HOLDING))
    for _ in range(3):
        process.come_back(process.compose())
    assert not held_among(requests)


# Mistakes


def test_after_a_mistake_nobody_stays_held_and_the_static_chunk_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, requests = holding()
    process.adopt(SchedulingPolicy(Static(200), holding=HOLDING))

    def fail(*_: object) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(process.mirror, "plan", fail)
    process.arrive(FakeRequest("long", num_prompt_tokens=1000))
    output = process.compose()
    assert not held_among(requests)
    assert output.total_num_scheduled_tokens == STATIC
    assert process.mistakes == ["the add-on made a mistake; vLLM's log has it"]
    process.come_back(output)
    process.leader.on_accepted(FakeRequest("z"), 1.0)
    assert len(process.mistakes) == 1


def test_a_stage_that_runs_something_else_is_a_mistake() -> None:
    process, _ = decoding("a")
    output = process.compose()
    note = note_of(output)
    assert note is not None
    process.reports = [a_report(note, 1, output)._replace(num_tokens=9)]
    process.leader.tick(process.now_s)
    assert process.mistakes


def test_a_stage_that_never_tells_its_times_is_a_mistake() -> None:
    process, _ = decoding("a")
    for _ in range(MOST_UNREPORTED_TURNS + 1):
        process.come_back(process.compose(), is_reported=False)
        assert not process.mistakes
    process.come_back(process.compose(), is_reported=False)
    assert process.mistakes
