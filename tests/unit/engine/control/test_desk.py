"""Policies are put in force between two micro-batches, hold for their lease, and leave no trace."""

from dataclasses import dataclass, field

import pytest

from control_parts import STATIC_CHUNK_TOKENS, UNIX_TIME_S, a_desk, a_leased
from pipelineserve import metrics
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.scheduler.session import NO_POLICY, ControlSession, Refusal, Refused
from pipelineserve_engine.control.assembly import make_desk
from pipelineserve_engine.control.desk import (
    MAX_WATCHERS,
    Applied,
    ControlDesk,
    Opened,
    first_epoch,
)
from scripted_engine import ScriptedEngine, a_request, a_scripted_engine


@dataclass
class Control:
    """A desk and the engine that it controls."""

    engine: ScriptedEngine = field(default_factory=a_scripted_engine)
    desk: ControlDesk = field(init=False)

    def __post_init__(self) -> None:
        self.desk = a_desk(self.engine)

    def opened(self) -> Opened:
        """A new session, which there must be room for."""
        opened = self.desk.open("test", now_s=0.0)
        assert opened is not None
        return opened

    def outcomes(self, outcome: str) -> float:
        """How many policies were counted so."""
        return self.engine.metric(metrics.POLICIES, outcome=outcome)

    def chunk_policy(self) -> object:
        """What is in force."""
        return self.engine.core.scheduler.chunk_policy


# Apply


def test_names_the_first_micro_batch_under_the_policy_while_others_are_in_flight() -> None:
    control = Control()
    core, executor = control.engine.core, control.engine.executor
    epoch = control.opened().epoch
    for request_id in "ab":
        core.submit(a_request(request_id, num_prompt_tokens=40), 0.0)
    core.fill_slots(0.0)
    before = [executor.next_command(), executor.next_command()]
    applied = control.desk.apply(epoch, 1, a_leased(chunk_tokens=10), now_s=1.0)
    executor.answer(before[0])
    for report in executor.receive(0.0):
        core.absorb(report, 2.0)
    core.fill_slots(2.0)
    after = executor.next_command()
    assert [command.num_tokens for command in before] == [STATIC_CHUNK_TOKENS] * 2
    assert (applied, after.num_tokens) == (Applied(after.sequence), 10)


def test_the_same_sequence_again_is_answered_alike_and_changes_nothing() -> None:
    control = Control()
    epoch = control.opened().epoch
    first = control.desk.apply(epoch, 1, a_leased(32, lease_s=10.0), now_s=0.0)
    again = control.desk.apply(epoch, 1, a_leased(48, lease_s=10.0), now_s=9.0)
    assert again == first
    assert control.chunk_policy() == Static(32)
    control.desk.turn(10.0)
    assert control.chunk_policy() == Static(STATIC_CHUNK_TOKENS)
    assert (control.outcomes("applied"), control.outcomes("repeated")) == (1, 1)


@pytest.mark.parametrize(
    ("epoch_offset", "sequence", "refusal", "latest_offset"),
    [(-1, 3, Refusal.OLD_SESSION, None), (0, 1, Refusal.OLD_SEQUENCE, 2)],
)
def test_an_old_session_or_sequence_changes_nothing(
    epoch_offset: int, sequence: int, refusal: Refusal, latest_offset: int | None
) -> None:
    control = Control()
    epoch = control.opened().epoch
    control.desk.apply(epoch, 2, a_leased(32), now_s=0.0)
    refused = control.desk.apply(epoch + epoch_offset, sequence, a_leased(48), now_s=0.0)
    assert refused == Refused(refusal, epoch if latest_offset is None else latest_offset)
    assert control.chunk_policy() == Static(32)
    assert control.outcomes(refusal.value) == 1


def test_without_a_session_no_policy_counts() -> None:
    control = Control()
    refused = control.desk.apply(1, 1, a_leased(32), now_s=0.0)
    assert refused == Refused(Refusal.NO_SESSION, 0)
    assert control.chunk_policy() == Static(STATIC_CHUNK_TOKENS)


def test_a_restarted_controller_takes_over_from_a_dying_one() -> None:
    control = Control()
    old, new = control.opened(), control.opened()
    assert new.epoch > old.epoch
    assert isinstance(control.desk.apply(new.epoch, 1, a_leased(32), 0.0), Applied)
    assert isinstance(control.desk.apply(old.epoch, 9, a_leased(48), 0.0), Refused)
    assert control.chunk_policy() == Static(32)


# The lease


@dataclass
class Adopted:
    """Keeps what it is told to schedule by."""

    policies: list[SchedulingPolicy] = field(default_factory=list)

    def adopt(self, policy: SchedulingPolicy) -> int:
        """See `Schedulable.adopt`."""
        self.policies.append(policy)
        return len(self.policies)


def test_everything_goes_back_when_the_lease_ends() -> None:
    control, scheduler = Control(), Adopted()
    session = ControlSession(1)
    default = SchedulingPolicy(Static(STATIC_CHUNK_TOKENS))
    recorder = control.desk._teller
    desk = ControlDesk(scheduler, session, default, recorder, control.engine.telemetry)
    leased = LeasedPolicy(SchedulingPolicy(Static(32), Ageing(0.1)), lease_s=5.0)
    desk.apply(session.open(), 1, leased, now_s=100.0)
    desk.turn(104.9)
    assert scheduler.policies == [leased.policy]
    assert control.engine.metric(metrics.POLICY_IN_FORCE) == 1
    desk.turn(105.0)
    desk.turn(106.0)
    assert scheduler.policies[1:] == [
        SchedulingPolicy(Static(STATIC_CHUNK_TOKENS), Arrival(), HoldNothing(Reason.LEASE_ENDED))
    ]
    assert session.in_force == NO_POLICY
    assert control.engine.metric(metrics.POLICY_IN_FORCE) == 0
    assert control.engine.metric(metrics.POLICY_LAPSES) == 1


def test_the_static_chunk_of_a_policy_comes_back_when_a_lease_ends() -> None:
    control = Control()
    epoch = control.opened().epoch
    named = LeasedPolicy(SchedulingPolicy(Static(32)), lease_s=5.0, static_chunk_tokens=24)
    control.desk.apply(epoch, 1, named, now_s=0.0)
    assert control.chunk_policy() == Static(32)
    control.desk.turn(5.0)
    assert control.chunk_policy() == Static(24)
    control.desk.apply(epoch, 2, a_leased(48, lease_s=5.0), now_s=6.0)
    control.desk.turn(11.0)
    assert control.chunk_policy() == Static(24)


def test_a_refused_or_repeated_policy_leaves_the_static_chunk() -> None:
    control = Control()
    epoch = control.opened().epoch
    control.desk.apply(epoch, 2, a_leased(32, lease_s=5.0), now_s=0.0)
    named = LeasedPolicy(SchedulingPolicy(Static(32)), lease_s=5.0, static_chunk_tokens=24)
    for sequence in (1, 2):
        control.desk.apply(epoch, sequence, named, now_s=0.0)
    control.desk.turn(5.0)
    assert control.chunk_policy() == Static(STATIC_CHUNK_TOKENS)


def test_a_newer_policy_renews_the_lease() -> None:
    control = Control()
    epoch = control.opened().epoch
    control.desk.apply(epoch, 1, a_leased(32, lease_s=5.0), now_s=0.0)
    control.desk.apply(epoch, 2, a_leased(32, lease_s=5.0), now_s=4.0)
    control.desk.turn(8.9)
    assert control.chunk_policy() == Static(32)
    control.desk.turn(9.0)
    assert control.chunk_policy() == Static(STATIC_CHUNK_TOKENS)


def test_a_new_session_leaves_the_policy_its_lease() -> None:
    control = Control()
    epoch = control.opened().epoch
    control.desk.apply(epoch, 1, a_leased(32, lease_s=5.0), now_s=0.0)
    control.opened()
    control.desk.turn(4.9)
    assert control.chunk_policy() == Static(32)
    control.desk.turn(5.0)
    assert control.chunk_policy() == Static(STATIC_CHUNK_TOKENS)


# Sessions


def test_takes_so_many_watchers_and_another_one_when_one_has_left() -> None:
    control = Control()
    opened = [control.opened() for _ in range(MAX_WATCHERS)]
    assert control.engine.metric(metrics.WATCHERS) == MAX_WATCHERS
    assert control.desk.open("one too many", 0.0) is None
    assert control.desk.apply(opened[-1].epoch, 1, a_leased(), 0.0) == Applied(0)
    control.desk.close(opened[0].watcher)
    assert control.engine.metric(metrics.WATCHERS) == MAX_WATCHERS - 1
    assert control.opened().epoch > opened[-1].epoch


def test_epochs_go_on_above_those_of_the_process_before() -> None:
    def last_epoch(started_at_s: float, num_sessions: int) -> int:
        engine = a_scripted_engine()
        desk = make_desk(
            engine.core.scheduler, engine.observer, engine.telemetry,
            num_stages=1, static_chunk_tokens=16, unix_time_s=started_at_s,
        )  # fmt: skip
        epoch = 0
        for _ in range(num_sessions):
            opened = desk.open("test", 0.0)
            assert opened is not None
            desk.close(opened.watcher)
            epoch = opened.epoch
        return epoch

    assert last_epoch(UNIX_TIME_S, 900) < first_epoch(UNIX_TIME_S + 1.0)
    assert last_epoch(UNIX_TIME_S + 1.0, 1) == first_epoch(UNIX_TIME_S + 1.0)
