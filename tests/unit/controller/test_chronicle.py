"""What the screen shows of the recent past: bounded, and gaps where nothing was known."""

import random

import pytest

from control_turns import Course, make_engine, make_objectives
from pipelineserve.policy.control.decide import Fact
from pipelineserve.policy.control.feasibility import Verdict
from pipelineserve.policy.control.objectives import ChunkLaw, HoldLaw
from pipelineserve.policy.reasons import Reason
from pipelineserve_controller.backoff import Backoff
from pipelineserve_controller.chronicle import Chronicle
from pipelineserve_controller.facts import fact_texts, feasible_instead, policy_text
from pipelineserve_controller.state import MAX_DECISIONS, MAX_HISTORY


def followed(course: Course, seconds: float, chronicle: Chronicle) -> None:
    for _ in range(round(seconds / 0.2)):
        turn, observation = course.turn()
        chronicle.note(observation, turn, course.now_s)


def test_history_is_one_point_a_second_for_five_minutes() -> None:
    chronicle = Chronicle()
    followed(Course(), 400.0, chronicle)
    assert len(chronicle.history) == MAX_HISTORY
    times = [point.at_unix_s for point in chronicle.history]
    assert times[-1] - times[0] == pytest.approx(MAX_HISTORY, rel=0.25)


def test_what_was_not_known_is_a_gap_and_not_a_zero() -> None:
    chronicle, course = Chronicle(), Course()
    followed(course, 5.0, chronicle)
    assert chronicle.history[-1].num_waiting == 0
    course.standing = lambda _: None
    followed(course, 6.0, chronicle)
    assert chronicle.history[-1].num_waiting is None
    assert chronicle.history[-1].kv_free_ratio is None


def test_decisions_are_changes_only_and_bounded() -> None:
    chronicle, course = Chronicle(), Course(make_objectives(chunk_law=ChunkLaw.STATIC))
    followed(course, 20.0, chronicle)
    reasons = [decision.reason for decision in chronicle.decisions]
    assert reasons == [Reason.STATIC_CHUNK.value]
    for _ in range(60):
        course.engine = None
        followed(course, 0.2, chronicle)
        course.engine = make_engine()
        followed(course, 0.2, chronicle)
    assert len(chronicle.decisions) == MAX_DECISIONS


def test_a_policy_is_said_in_a_line() -> None:
    turn, _ = Course(make_objectives(hold_law=HoldLaw.TPOT_FIRST)).train()
    text = policy_text(turn.policy)
    assert text == "chunk predicted, 64 to 384, order ageing, hold tpot_first"
    turn, _ = Course(make_objectives(chunk_law=ChunkLaw.STATIC)).train()
    assert policy_text(turn.policy) == "chunk 256, order ageing, nothing held"
    assert "static chunk" in policy_text(None)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("recent_ttft_s", ("recent ttft", "0.5 s")),
        ("waiting_tokens", ("waiting", "0.5 tokens")),
        ("demand_tokens_per_s", ("demand tokens", "0.5 per s")),
        ("kv_free_ratio", ("kv free", "0.5")),
        ("num_samples", ("num samples", "0.5")),
    ],
)
def test_a_figure_is_shown_in_words_with_its_unit(name: str, shown: tuple[str, str]) -> None:
    assert fact_texts([Fact(name, 0.5)]) == (shown,)


def verdict(ttft_s: float | None, tpot_s: float | None) -> Verdict:
    return Verdict(
        is_feasible=False,
        reason=Reason.TARGETS_CONFLICT,
        best=None,
        least_ttft_s=ttft_s,
        least_tpot_s=tpot_s,
    )


def test_what_could_be_met_is_said_in_words() -> None:
    both = feasible_instead(verdict(12.0, 0.25))
    assert (
        both == "a TTFT of 12.0 s with this TPOT target or a TPOT of 250 ms with this TTFT target"
    )
    assert "less of it" in feasible_instead(verdict(None, None))
    assert feasible_instead(None) == ""


def test_pauses_grow_are_bounded_and_spread() -> None:
    backoff, chance = Backoff(0.1, 5.0), random.Random(1)
    for _ in range(50):
        pause_s = backoff.pause_s(chance)
        bound_s = min(5.0, 0.1 * 2**backoff.num_failures)
        assert 0.5 * bound_s <= pause_s <= bound_s
        backoff = backoff.failed()
    assert backoff.succeeded().pause_s(chance) <= 0.1
