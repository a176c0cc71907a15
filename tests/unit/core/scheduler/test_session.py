"""Sessions, sequences and the lease of policies."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.scheduler.session import (
    NO_POLICY,
    ControlSession,
    Granted,
    PolicyId,
    Refusal,
    Refused,
    Repeated,
)


def granted(session: ControlSession, sequence: int, now_s: float = 0.0) -> None:
    session.grant(sequence, first_micro_batch=10 * sequence, lease_s=5.0, now_s=now_s)


def test_a_policy_before_any_session_is_refused() -> None:
    assert ControlSession(7).check(7, 1) == Refused(Refusal.NO_SESSION, 0)


def test_each_session_has_a_higher_epoch_than_the_one_before() -> None:
    session = ControlSession(7)
    assert [session.open(), session.open()] == [7, 8]


def test_only_the_newest_session_counts() -> None:
    session = ControlSession(1)
    old = session.open()
    new = session.open()
    assert session.check(old, 1) == Refused(Refusal.OLD_SESSION, new)
    assert session.check(new, 1) == Granted()


def test_an_epoch_that_was_never_given_is_refused() -> None:
    session = ControlSession(1)
    epoch = session.open()
    assert session.check(epoch + 1, 1) == Refused(Refusal.OLD_SESSION, epoch)


def test_a_restarted_controller_begins_with_sequence_one_again() -> None:
    session = ControlSession(1)
    session.open()
    granted(session, 40)
    assert session.check(session.open(), 1) == Granted()


def test_an_older_sequence_is_refused_and_the_same_one_repeated() -> None:
    session = ControlSession(1)
    epoch = session.open()
    granted(session, 3)
    assert session.check(epoch, 2) == Refused(Refusal.OLD_SEQUENCE, 3)
    assert session.check(epoch, 3) == Repeated(30)
    assert session.check(epoch, 4) == Granted()


def test_sequence_zero_is_no_sequence() -> None:
    session = ControlSession(1)
    assert session.check(session.open(), 0) == Refused(Refusal.OLD_SEQUENCE, 0)


def test_a_lease_ends_once_and_is_renewed_by_the_next_policy() -> None:
    session = ControlSession(1)
    session.open()
    granted(session, 1, now_s=0.0)
    assert not session.lapse(4.9)
    granted(session, 2, now_s=4.9)
    assert not session.lapse(9.8)
    assert session.lease_left_s(9.8) > 0.0
    assert session.lapse(9.9)
    assert not session.lapse(100.0)
    assert (session.in_force, session.lease_left_s(100.0)) == (NO_POLICY, 0.0)


def test_the_policy_of_a_controller_that_is_gone_holds_for_its_lease_only() -> None:
    session = ControlSession(1)
    session.open()
    granted(session, 9, now_s=0.0)
    session.open()
    assert session.in_force == PolicyId(1, 9)
    assert session.lapse(5.0)
    assert session.in_force == NO_POLICY


def test_a_lapsed_sequence_is_not_put_in_force_again() -> None:
    session = ControlSession(1)
    epoch = session.open()
    granted(session, 1, now_s=0.0)
    session.lapse(6.0)
    assert session.check(epoch, 1) == Repeated(10)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["open", "apply", "wait"]), st.integers(0, 4), st.integers(0, 4)),
        max_size=60,
    )
)
def test_whatever_is_granted_is_of_the_newest_session_and_rises(
    steps: list[tuple[str, int, int]],
) -> None:
    session = ControlSession(1)
    now_s, newest, latest = 0.0, 0, 0
    for action, first, second in steps:
        match action:
            case "open":
                newest, latest = session.open(), 0
            case "apply":
                if session.check(first, second) == Granted():
                    assert (first, second > latest) == (newest, True)
                    latest = second
                    granted(session, second, now_s)
            case _:
                now_s += first
                session.lapse(now_s)
                assert session.lease_left_s(now_s) <= 5.0
