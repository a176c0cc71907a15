"""Who may run a stage, what stage hosts are told, and what the leader learns from them."""

from pipelineserve_engine.remote.messages import (
    IdleWord,
    KeepWord,
    RefusedWord,
    RunWord,
)
from pipelineserve_engine.remote.roster import Roster
from remote_stages import a_status, an_order

SILENCE_S = 5.0
FIRST = b"first"


def a_roster(*, group_epoch: int = 0) -> Roster:
    return Roster(["a", "b"], group_epoch, SILENCE_S)


def reason(word: object) -> str:
    assert isinstance(word, RefusedWord)
    return word.reason


def test_a_stage_host_without_an_order_runs_nothing() -> None:
    assert a_roster().hear(FIRST, a_status(generation="old"), 0.0) == IdleWord(0.0)


def test_an_order_is_given_until_it_is_obeyed() -> None:
    roster = a_roster()
    roster.order(1, an_order())
    for now_s in (0.0, 1.0):
        assert roster.hear(FIRST, a_status(generation="old"), now_s) == RunWord(now_s, an_order())
    assert roster.hear(FIRST, a_status(generation="g1", pid=7), 2.0) == KeepWord(2.0)
    assert roster.state(1).pid == 7
    assert roster.state(1).end is None


def test_the_end_of_the_ordered_worker_is_noted_and_nothing_started_in_its_place() -> None:
    roster = a_roster()
    roster.order(1, an_order())
    ended = a_status(generation="g1", pid=7, exit_code=-9)
    assert roster.hear(FIRST, ended, 0.0) == KeepWord(0.0)
    end = roster.state(1).end
    assert end is not None
    assert end.is_cause
    assert end.text.startswith("ended with signal 9 (SIGKILL")


def test_a_worker_that_its_stage_host_ended_unasked_is_lost_and_not_started_again() -> None:
    roster = a_roster()
    roster.order(1, an_order())
    roster.hear(FIRST, a_status(generation="g1", pid=7), 0.0)
    assert roster.hear(FIRST, a_status(), 12.0) == KeepWord(12.0)
    end = roster.state(1).end
    assert end is not None
    assert end.is_cause
    assert end.text == "was ended by its stage host"
    # Nor does it come back to life; the next order is obeyed as ever.
    roster.hear(FIRST, a_status(generation="g1", pid=7), 13.0)
    assert roster.state(1).end == end
    roster.order(1, an_order("g2"))
    assert roster.hear(FIRST, a_status(generation="g1"), 14.0) == RunWord(14.0, an_order("g2"))
    assert roster.state(1).end is None


def test_the_end_of_an_earlier_worker_says_nothing_about_the_new_one() -> None:
    roster = a_roster()
    roster.order(1, an_order("g1"))
    ended = a_status(generation="g1", exit_code=1)
    roster.hear(FIRST, ended, 0.0)
    roster.order(1, an_order("g2"))
    assert roster.state(1).end is None
    assert roster.hear(FIRST, ended, 1.0) == RunWord(1.0, an_order("g2"))
    assert roster.state(1).end is None


def test_a_second_stage_host_is_refused_and_told_why() -> None:
    roster = a_roster()
    roster.hear(FIRST, a_status(), 0.0)
    word = roster.hear(b"second", a_status(instance_id="i2"), SILENCE_S)
    assert "stage 1 has a stage host already, heard 5.0 s ago" in reason(word)
    assert isinstance(word, RefusedWord)
    assert not word.is_final
    assert roster.connection(1) == FIRST


def test_another_one_takes_the_place_of_one_that_fell_silent_and_its_worker_is_lost() -> None:
    roster = a_roster()
    roster.order(1, an_order())
    roster.hear(FIRST, a_status(generation="g1"), 0.0)
    second = a_status(instance_id="i2")
    assert roster.hear(b"second", second, SILENCE_S + 0.1) == KeepWord(SILENCE_S + 0.1)
    end = roster.state(1).end
    assert end is not None
    assert end.text == "was lost with its stage host"
    roster.order(1, an_order("g2"))
    assert isinstance(roster.hear(b"second", second, 6.0), RunWord)
    # The one that was silent is now the one too many.
    assert "already" in reason(roster.hear(FIRST, a_status(generation="g1"), 6.0))


def test_the_same_stage_host_may_come_back_over_another_connection() -> None:
    roster = a_roster()
    roster.hear(FIRST, a_status(), 0.0)
    roster.hear(b"again", a_status(), 1.0)
    assert roster.connection(1) == b"again"


def test_members_of_another_group_epoch_are_refused() -> None:
    roster = a_roster(group_epoch=4)
    older = roster.hear(FIRST, a_status(group_epoch=3), 0.0)
    newer = roster.hear(FIRST, a_status(group_epoch=5), 0.0)
    assert older == RefusedWord(0.0, "group epoch 3 is over: this leader's is 4", is_final=True)
    # The leader of its own group may still come to this address.
    text = "this leader's group epoch 4 is older than 5"
    assert newer == RefusedWord(0.0, text, is_final=False)
    assert roster.connection(1) is None


def test_a_wrong_address_or_stage_is_refused_for_good() -> None:
    roster = a_roster()
    assert reason(roster.hear(FIRST, a_status(address="c"), 0.0)) == (
        "stage 1 is expected at b, not c"
    )
    for index in (-1, 2):
        word = roster.hear(FIRST, a_status(stage_index=index), 0.0)
        assert reason(word) == f"stage {index} does not exist: this group has 2 stages"


def test_a_members_clock_is_estimated_from_its_round_trips() -> None:
    roster = a_roster()
    roster.hear(FIRST, a_status(clock_s=500.0), 10.0)
    roster.hear(FIRST, a_status(clock_s=502.0, echo_s=10.0, held_s=1.9), 12.1)
    # The answer was under way for 0.1 s, half of the round trip.
    assert abs(roster.state(1).clock_offset_s - (12.0 - 502.0)) < 1e-9


def test_a_word_to_one_stage_host_is_none_to_the_others() -> None:
    roster = a_roster()
    for index, address in enumerate(("a", "b")):
        roster.hear(FIRST, a_status(stage_index=index, address=address), 0.0)
        roster.order(index, an_order())
    assert roster.word(1, 1.0) == RunWord(1.0, an_order())
    # Another one takes the first stage's place. It was told nothing, so nothing was lost.
    late_s = SILENCE_S + 0.1
    roster.hear(b"second", a_status(stage_index=0, address="a", instance_id="i2"), late_s)
    assert roster.state(0).end is None


def test_a_stage_without_a_host_is_told_nothing() -> None:
    roster = a_roster()
    roster.order(1, an_order())
    assert roster.word(1, 0.0) is None
