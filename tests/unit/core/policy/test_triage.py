"""When not all can be in time, the largest prompts are late; they keep a share."""

from itertools import permutations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.triage import (
    Triage,
    TriageDecision,
    TriageMemory,
    TriageView,
    TurnDecision,
)
from pipelineserve.policy.views import WaitingRequestView

POLICY = Triage(ttft_target_s=2.0)
NO_CREDIT = TriageMemory()

Prompt = tuple[float, int]


def triage_view(
    *prompts: Prompt, tokens_ahead: int = 0, now_s: float = 10.0, tokens_per_s: float = 1000.0
) -> TriageView:
    """Prompts as (arrival, tokens)."""
    waiting = tuple(WaitingRequestView(*prompt) for prompt in sorted(prompts))
    return TriageView(now_s, waiting, tokens_ahead, tokens_per_s, passage_s=0.2)


def late(*prompts: Prompt, tokens_ahead: int = 0) -> tuple[int, ...]:
    return POLICY.sort_out(triage_view(*prompts, tokens_ahead=tokens_ahead)).late


def test_nobody_is_late_where_all_can_be_in_time() -> None:
    view = triage_view((9.5, 500), (9.9, 900), (10.0, 100))
    assert POLICY.sort_out(view) == TriageDecision((), Reason.IN_TIME)


def test_the_largest_is_late_when_not_all_can_be_in_time() -> None:
    view = triage_view((9.5, 1000), (9.6, 300), (9.7, 300), (9.8, 300))
    assert POLICY.sort_out(view) == TriageDecision((0,), Reason.LATE)


def test_time_passes_with_what_goes_first_in_any_case() -> None:
    prompts = ((9.9, 800), (9.95, 300))
    assert late(*prompts) == ()
    assert late(*prompts, tokens_ahead=800) == (0,)


def test_the_passage_through_the_stages_counts() -> None:
    assert late((10.0, 1800)) == ()
    assert late((10.0, 1801)) == (0,)


def test_being_late_is_no_lasting_mark() -> None:
    crowd = [(9.5, 1000), *[(9.6, 300)] * 3]
    assert late(*crowd) == (0,)
    assert late(crowd[0]) == ()


def test_while_no_pace_is_known_only_time_makes_late() -> None:
    view = triage_view((8.1, 10), (8.3, 10**6), tokens_per_s=inf, tokens_ahead=10**6)
    assert POLICY.sort_out(view).late == (0,)


def test_an_empty_queue_has_nobody_late() -> None:
    assert late() == ()


@pytest.mark.parametrize(
    ("num_in_time", "num_late", "credit_tokens", "expected"),
    [
        (3, 0, 9.0, TurnDecision(is_late_turn=False, reason=Reason.IN_TIME)),
        (3, 1, 0.0, TurnDecision(is_late_turn=False, reason=Reason.IN_TIME)),
        (3, 1, 9.0, TurnDecision(is_late_turn=True, reason=Reason.LATE_SHARE)),
        (0, 1, -9.0, TurnDecision(is_late_turn=True, reason=Reason.LATE)),
    ],
)
def test_those_in_time_go_first_but_for_what_is_owed_to_the_others(
    num_in_time: int, num_late: int, credit_tokens: float, expected: TurnDecision
) -> None:
    memory = TriageMemory(credit_tokens)
    assert POLICY.turn(memory, num_in_time=num_in_time, num_late=num_late) == expected


def test_late_prompts_get_their_share_of_the_work_and_no_more() -> None:
    memory, in_time, late_tokens = NO_CREDIT, 0, 0
    for _ in range(2000):
        is_late_turn = POLICY.turn(memory, num_in_time=9, num_late=9).is_late_turn
        served = (0, 400) if is_late_turn else (400, 0)
        memory = POLICY.charge(memory, in_time_tokens=served[0], late_tokens=served[1])
        in_time, late_tokens = in_time + served[0], late_tokens + served[1]
    assert late_tokens / (in_time + late_tokens) == pytest.approx(0.05, abs=0.002)


def test_credit_stays_within_its_bounds() -> None:
    memory = POLICY.charge(NO_CREDIT, in_time_tokens=10**6, late_tokens=0)
    assert memory.credit_tokens == 4000
    assert POLICY.charge(memory, in_time_tokens=0, late_tokens=10**6).credit_tokens == -20_000


# Half milliseconds: work is done at whole ones, so that nothing is in time by rounding alone.
prompt_lists = st.lists(
    st.tuples(st.integers(6000, 9999).map(lambda ms: (ms + 0.5) / 1000), st.integers(1, 1500)),
    max_size=6,
)


def num_in_time(prompts: list[Prompt], order: tuple[int, ...]) -> int:
    done_s, num = 10.0, 0
    for index in order:
        arrival_s, tokens = prompts[index]
        done_s += tokens / 1000.0
        num += done_s + 0.2 <= arrival_s + 2.0
    return num


@given(prompt_lists)
def test_no_other_order_has_more_prompts_in_time(prompts: list[Prompt]) -> None:
    prompts = sorted(prompts)
    dropped = late(*prompts)
    kept = tuple(index for index in range(len(prompts)) if index not in dropped)
    most = max(num_in_time(prompts, order) for order in permutations(range(len(prompts))))
    assert num_in_time(prompts, kept) == len(kept) == most


@given(prompt_lists)
def test_who_is_past_the_deadline_changes_nothing_for_the_others(
    prompts: list[Prompt],
) -> None:
    prompts = sorted(prompts)
    hopeful = [prompt for prompt in prompts if prompt[0] >= 8.0]
    num_past = len(prompts) - len(hopeful)
    assert late(*prompts) == (
        *range(num_past),
        *(index + num_past for index in late(*hopeful)),
    )
