"""What a controller sends: what is new, and what must be renewed."""

from dataclasses import replace

import pytest

from control_turns import Course, make_standing
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.heard import Heard, Standing
from pipelineserve.policy.control.sending import (
    RENEWAL_SHARE,
    VACANT_S,
    Idle,
    SendingMemory,
    Sessions,
    next_sending,
)
from pipelineserve.policy.control.turns import Turn
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy

OPEN = Sessions(1)
SUPERSEDED = Sessions(1, is_superseded=True)


def a_turn(chunk_tokens: int = 256, *, is_to_send: bool = True, lease_s: float = 10.0) -> Turn:
    turn, _ = Course().turn()
    policy = SchedulingPolicy(Static(chunk_tokens))
    return replace(turn, policy=policy, is_to_send=is_to_send, lease_s=lease_s)


def at(now_s: float, standing: Standing | None = None) -> Heard:
    return Heard(now_s, None, standing, (), (), 0, 0, 0)


def sent(chunk_tokens: int = 256) -> LeasedPolicy:
    turn = a_turn(chunk_tokens)
    assert turn.policy is not None
    return LeasedPolicy(turn.policy, turn.lease_s, turn.static_chunk_tokens)


IN_FORCE = SendingMemory(session=1).applied(sent(), 100.0)


def test_the_first_policy_of_a_session_is_sent() -> None:
    sending, memory = next_sending(SendingMemory(), a_turn(), at(1.0), OPEN)
    assert sending == sent()
    assert memory.session == 1


@pytest.mark.parametrize(
    ("now_s", "chunk_tokens", "expected"),
    [
        (100.0 + 10.0 * RENEWAL_SHARE - 0.1, 256, Idle.KEEP),
        (100.0 + 10.0 * RENEWAL_SHARE, 256, sent()),
        (100.2, 512, sent(512)),
    ],
    ids=["the same, fresh", "the same, due", "another one"],
)
def test_what_is_in_force_is_renewed_when_due_and_replaced_at_once(
    now_s: float, chunk_tokens: int, expected: LeasedPolicy | Idle
) -> None:
    sending, _ = next_sending(IN_FORCE, a_turn(chunk_tokens), at(now_s), OPEN)
    assert sending == expected


def test_in_a_new_session_and_after_a_failure_it_is_sent_again() -> None:
    assert next_sending(IN_FORCE, a_turn(), at(100.2), Sessions(2))[0] == sent()
    assert next_sending(IN_FORCE.failed(), a_turn(), at(100.2), OPEN)[0] == sent()


def test_after_a_turn_that_sends_nothing_nothing_is_known_to_hold() -> None:
    sending, memory = next_sending(IN_FORCE, a_turn(is_to_send=False), at(100.2), OPEN)
    assert sending is Idle.KEEP
    assert next_sending(memory, a_turn(), at(100.4), OPEN)[0] == sent()


def test_a_superseded_one_takes_over_once_nobodys_policy_has_held_for_a_while() -> None:
    memory = IN_FORCE
    nobodys, somebodys = make_standing(), replace(make_standing(), policy_sequence=3)
    script = [
        (0.0, nobodys, Idle.KEEP),
        (VACANT_S - 0.1, somebodys, Idle.KEEP),
        (VACANT_S, nobodys, Idle.KEEP),
        (VACANT_S + 1.0, None, Idle.KEEP),
        (2 * VACANT_S - 0.1, nobodys, Idle.KEEP),
        (2 * VACANT_S, nobodys, Idle.TAKE_OVER),
    ]
    for after_s, standing, expected in script:
        sending, memory = next_sending(memory, a_turn(), at(100.0 + after_s, standing), SUPERSEDED)
        assert sending is expected, after_s
