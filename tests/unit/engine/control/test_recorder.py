"""Records come in batches, once each, bounded, and only while somebody watches."""

from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_parts import a_decode, a_micro_batch, a_piece, a_report, an_end
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.scheduler.telling.collecting import (
    FLUSH_PERIOD_S,
    FLUSH_RECORDS,
    SNAPSHOT_PERIOD_S,
    Collector,
)
from pipelineserve.scheduler.telling.live_requests import LiveRequests
from pipelineserve.wire.events import decode_records
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_engine.control.assembly import HeardLiveRequests
from pipelineserve_engine.control.messages import records_message, request_message
from pipelineserve_engine.control.recorder import Recorder
from pipelineserve_engine.control.watchers import Watcher
from scripted_engine import a_request, a_scripted_engine

MANY = 1_000_000
T0_S = 100.0


@dataclass
class Watched:
    """A recorder of one stage, and its first watcher."""

    watcher: Watcher = field(default_factory=lambda: Watcher("test", MANY))
    lost: list[int] = field(default_factory=list)
    session: ControlSession = field(default_factory=lambda: ControlSession(1))
    recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        scheduler = a_scripted_engine().core.scheduler
        collector = Collector(1, scheduler, self.session, LiveRequests())
        self.recorder = Recorder(collector, self.lost.append)

    def step(self, sequence: int, now_s: float = T0_S) -> None:
        """One micro-batch there and back."""
        self.recorder.on_sent(a_micro_batch(sequence), now_s)
        self.recorder.on_step(a_report(sequence))
        self.recorder.on_completed(a_report(sequence), now_s, 0)


def watched() -> Watched:
    parts = Watched()
    parts.recorder.add(parts.watcher, T0_S)
    return parts


def taken(watcher: Watcher) -> list[pb.Records]:
    """All that is queued now."""
    return [next_records(watcher) for _ in range(len(watcher._pending))]


def next_records(watcher: Watcher) -> pb.Records:
    event = watcher.next_event()
    assert event is not None
    return event.records


def sequences(watcher: Watcher) -> list[int]:
    return [step.sequence for records in taken(watcher) for step in records.steps]


# When batches go


def test_records_go_out_together_after_a_while() -> None:
    parts = watched()
    parts.step(0)
    assert parts.recorder.turn(T0_S + 0.005) == pytest.approx(FLUSH_PERIOD_S - 0.005)
    parts.step(1)
    assert not parts.watcher._pending
    assert parts.recorder.turn(T0_S + FLUSH_PERIOD_S) == SNAPSHOT_PERIOD_S
    (records,) = taken(parts.watcher)
    assert [step.sequence for step in records.steps] == [0, 1]
    assert records.now_s == T0_S + FLUSH_PERIOD_S
    assert records.HasField("snapshot")


def test_many_records_do_not_wait() -> None:
    parts = watched()
    for sequence in range(FLUSH_RECORDS - 1):
        parts.step(sequence)
    parts.recorder.turn(T0_S)
    assert not parts.watcher._pending
    parts.recorder.on_ended(an_end())
    parts.recorder.turn(T0_S)
    (records,) = taken(parts.watcher)
    assert (len(records.steps), len(records.requests)) == (FLUSH_RECORDS - 1, 1)


def test_without_records_a_snapshot_goes_out_now_and_then() -> None:
    parts = watched()
    assert parts.recorder.turn(T0_S + 0.1) == pytest.approx(SNAPSHOT_PERIOD_S - 0.1)
    assert not parts.watcher._pending
    parts.recorder.turn(T0_S + SNAPSHOT_PERIOD_S)
    parts.recorder.turn(T0_S + SNAPSHOT_PERIOD_S + 0.01)
    (records,) = taken(parts.watcher)
    assert records.HasField("snapshot")


# Who is told what


def test_without_a_watcher_nothing_is_kept() -> None:
    parts = Watched()
    parts.step(0)
    parts.recorder.on_sent(a_micro_batch(1), T0_S)
    parts.recorder.on_ended(an_end())
    parts.recorder.on_rejected(5, T0_S)
    assert parts.recorder.turn(T0_S + 10.0) == inf
    parts.recorder.add(parts.watcher, T0_S)
    parts.recorder.on_step(a_report(1))
    parts.recorder.on_completed(a_report(1), T0_S, 0)
    parts.recorder.turn(T0_S + 10.0)
    (records,) = taken(parts.watcher)
    assert (len(records.steps), len(records.requests)) == (0, 0)


def test_all_watchers_are_told_what_happens_from_their_start_on() -> None:
    parts = watched()
    parts.step(0)
    late = Watcher("late", MANY)
    parts.recorder.add(late, T0_S)
    parts.step(1)
    parts.recorder.turn(T0_S + 1.0)
    assert sequences(parts.watcher) == [0, 1]
    assert sequences(late) == [1]


def test_when_the_last_watcher_goes_the_next_one_starts_anew() -> None:
    parts = watched()
    parts.step(0)
    parts.recorder.on_sent(a_micro_batch(1), T0_S)
    parts.recorder.remove(parts.watcher)
    assert parts.recorder.turn(T0_S + 1.0) == inf
    late = Watcher("late", MANY)
    parts.recorder.add(late, T0_S)
    parts.recorder.on_step(a_report(1))
    parts.recorder.on_completed(a_report(1), T0_S, 0)
    parts.step(2)
    parts.recorder.turn(T0_S + 1.0)
    assert sequences(late) == [2]


def test_steps_say_under_which_policy_they_were_composed() -> None:
    parts = watched()
    parts.step(0)
    parts.recorder.on_sent(a_micro_batch(1), T0_S)
    parts.session.open()
    parts.session.grant(9, 2, lease_s=5.0, now_s=T0_S)
    parts.recorder.on_step(a_report(1))
    parts.recorder.on_completed(a_report(1), T0_S, 0)
    parts.step(2)
    parts.recorder.turn(T0_S + 1.0)
    (records,) = taken(parts.watcher)
    assert [step.policy_sequence for step in records.steps] == [0, 0, 9]
    assert records.snapshot.policy_sequence == 9
    assert records.snapshot.lease_left_s == pytest.approx(4.0)


def test_what_was_in_flight_when_the_stages_failed_is_no_step() -> None:
    parts = watched()
    parts.step(0)
    parts.recorder.on_sent(a_micro_batch(1, [a_decode(9)] * 3), T0_S)
    parts.recorder.on_recovery()
    parts.step(2)
    parts.recorder.turn(T0_S + 1.0)
    (records,) = taken(parts.watcher)
    assert [step.sequence for step in records.steps] == [0, 2]
    assert records.snapshot.most_decodes == 0


# Requests


def test_a_request_that_ended_has_all_its_times() -> None:
    assert request_message(an_end()) == pb.RequestRecord(
        outcome=pb.OUTCOME_LENGTH,
        arrival_s=10.0,
        end_s=15.0,
        num_prompt_tokens=7,
        num_output_tokens=5,
        queue_wait_s=1.0,
        ttft_s=2.0,
        tpot_s=0.5,
        held_s=0.75,
        longest_gap_s=1.25,
        num_requeues=2,
    )


def test_what_does_not_apply_to_a_request_is_absent() -> None:
    record = request_message(
        an_end(
            finish=FinishReason.CANCELLED,
            first_issue_s=None,
            first_token_s=None,
            last_token_s=None,
            num_output_tokens=0,
        )
    )
    assert record.outcome == pb.OUTCOME_CANCELLED
    for name in ("queue_wait_s", "ttft_s", "tpot_s"):
        assert not record.HasField(name)


@pytest.mark.parametrize("finish", FinishReason)
def test_every_end_has_an_outcome_of_its_own(finish: FinishReason) -> None:
    outcome = request_message(an_end(finish=finish)).outcome
    assert pb.Outcome.Name(outcome) == f"OUTCOME_{finish.value.upper()}"


def test_a_rejected_request_is_told_as_well() -> None:
    parts = watched()
    parts.recorder.on_rejected(5, T0_S)
    parts.recorder.turn(T0_S + 1.0)
    (records,) = taken(parts.watcher)
    (rejected,) = records.requests
    assert rejected.outcome == pb.OUTCOME_REJECTED
    assert (rejected.arrival_s, rejected.end_s, rejected.num_prompt_tokens) == (T0_S, T0_S, 5)


# What a controller makes of it


def test_a_controller_hears_on_the_wire_what_its_twin_hears_without_it() -> None:
    engine = a_scripted_engine()
    live = HeardLiveRequests()
    engine.observer.add(live)
    session = ControlSession(1)
    collector = Collector(2, engine.core.scheduler, session, live)
    collector.begin(T0_S)
    session.open()
    session.grant(9, 2, lease_s=5.0, now_s=T0_S)
    engine.core.submit(a_request("a", num_prompt_tokens=20), T0_S)
    collector.sent(a_micro_batch(3, [a_decode(9), a_piece(4, 5)], slot_index=1), T0_S)
    collector.stepped(3, 0, T0_S, T0_S + 0.25)
    collector.stepped(3, 1, T0_S + 0.5, T0_S + 1.5)
    collector.completed(3, T0_S + 2.0, 0)
    for finish in FinishReason:
        collector.ended(an_end(finish=finish))
    collector.ended(an_end(first_token_s=None, last_token_s=None, num_output_tokens=0))
    collector.rejected(7, T0_S)
    batch = collector.take(T0_S + 3.0)
    assert len(batch.steps) == 1
    assert decode_records(records_message(batch)) == batch.told(num_lost=0)
    assert batch.told(num_lost=2).num_lost == 2


# Slow watchers


def batch_of(first: int, num_steps: int) -> pb.Records:
    return pb.Records(steps=[pb.StepRecord(sequence=first + i) for i in range(num_steps)])


def test_a_slow_watcher_loses_the_oldest_and_is_told_how_many() -> None:
    watcher = Watcher("slow", max_records=10)
    assert watcher.put(batch_of(0, 4)) == 0
    assert watcher.put(batch_of(4, 4)) == 0
    assert watcher.put(batch_of(8, 1)) == 4
    first, second = taken(watcher)
    assert [step.sequence for step in first.steps] == [4, 5, 6, 7]
    assert (first.num_lost, second.num_lost) == (4, 4)


def test_snapshots_alone_do_not_pile_up_for_a_dead_watcher() -> None:
    watcher = Watcher("dead", max_records=10)
    for _ in range(1000):
        watcher.put(batch_of(0, 0))
    assert len(watcher._pending) <= 10


def test_a_loss_for_one_watcher_is_counted_and_none_of_another() -> None:
    parts = watched()
    slow = Watcher("slow", max_records=2)
    parts.recorder.add(slow, T0_S)
    for sequence in range(5):
        parts.step(sequence)
        parts.recorder.turn(T0_S + 1.0 + sequence)
    assert sequences(parts.watcher) == [0, 1, 2, 3, 4]
    assert sequences(slow) == [4]
    assert sum(parts.lost) == 4


@given(st.lists(st.one_of(st.integers(0, 9), st.none()), max_size=60))
def test_every_record_is_either_told_in_order_or_counted_as_lost(script: list[int | None]) -> None:
    """Numbers put so many records, None takes an event."""
    watcher = Watcher("slow", max_records=12)
    num_put = num_lost = 0
    told: list[int] = []
    for action in script:
        if action is not None:
            num_lost += watcher.put(batch_of(num_put, action))
            num_put += action
        elif watcher._pending:
            told += [step.sequence for step in next_records(watcher).steps]
    watcher.put(batch_of(num_put, 0))
    rest = taken(watcher)
    told += [step.sequence for records in rest for step in records.steps]
    assert told == sorted(set(told))
    assert len(told) + rest[-1].num_lost == num_put
    assert rest[-1].num_lost >= num_lost


def test_a_closed_watcher_is_told_nothing_more() -> None:
    watcher = Watcher("gone", MANY)
    watcher.put(batch_of(0, 1))
    watcher.close()
    assert watcher.next_event() is None
