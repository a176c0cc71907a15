"""When not all can be in time, the largest prompts go to the back; they keep a share."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.triage import Triage, TriageDecision, TriageMemory, TriageView
from pipelineserve.policy.views import WaitingRequestView

POLICY = Triage(ttft_target_s=2.0, passage_s=0.2)
NO_CREDIT = TriageMemory()

Prompt = tuple[float, int]


def triage_view(*prompts: Prompt, tokens_ahead: int = 0, now_s: float = 10.0) -> TriageView:
    """Prompts as (arrival, tokens), served at 1,000 tokens per second."""
    waiting = tuple(WaitingRequestView(*prompt) for prompt in prompts)
    return TriageView(now_s, waiting, tokens_ahead, tokens_per_s=1000.0)


def decided(*prompts: Prompt, memory: TriageMemory = NO_CREDIT) -> TriageDecision:
    return POLICY.decide(memory, triage_view(*prompts))


def test_who_can_all_be_in_time_go_by_arrival() -> None:
    decision = decided((9.9, 900), (9.5, 500), (10.0, 100))
    assert decision == TriageDecision((1, 0, 2), (), Reason.IN_TIME)


def test_the_largest_goes_to_the_back_when_not_all_can_be_in_time() -> None:
    decision = decided((9.5, 1000), (9.6, 300), (9.7, 300), (9.8, 300))
    assert decision == TriageDecision((1, 2, 3, 0), (0,), Reason.IN_TIME)


def test_time_passes_with_what_goes_first_in_any_case() -> None:
    prompts = ((9.9, 800), (9.95, 300))
    assert POLICY.decide(NO_CREDIT, triage_view(*prompts)).late == ()
    assert POLICY.decide(NO_CREDIT, triage_view(*prompts, tokens_ahead=800)).late == (0,)


def test_the_passage_through_the_stages_counts() -> None:
    assert decided((10.0, 1800)).late == ()
    assert decided((10.0, 1801)).late == (0,)


def test_those_who_are_late_go_by_arrival() -> None:
    decision = decided((5.0, 10), (3.0, 9000), (4.0, 5), (10.0, 100))
    assert decision.order == (3, 1, 2, 0)


def test_nobody_in_time_leaves_the_order_of_arrival() -> None:
    decision = decided((5.0, 10), (4.0, 10))
    assert decision == TriageDecision((1, 0), (0, 1), Reason.LATE)


def test_being_late_is_no_lasting_mark() -> None:
    crowd = [(9.5, 1000), *[(9.6, 300)] * 3]
    assert decided(*crowd).late == (0,)
    assert decided(crowd[0]).late == ()


def test_what_is_owed_lets_the_oldest_late_one_go_first() -> None:
    prompts = ((5.0, 10), (4.0, 20), (10.0, 100))
    decision = decided(*prompts, memory=TriageMemory(1.0))
    assert decision == TriageDecision((1, 2, 0), (0, 1), Reason.LATE_SHARE)
    assert decided(*prompts, memory=TriageMemory(0.0)).order[0] == 2


def test_an_empty_queue_has_an_empty_order() -> None:
    assert decided() == TriageDecision((), (), Reason.LATE)


def test_late_prompts_get_their_share_of_the_work_and_no_more() -> None:
    memory, in_time, late = NO_CREDIT, 0, 0
    for _ in range(2000):
        is_owed = memory.credit_tokens > 0
        served = (0, 400) if is_owed else (400, 0)
        memory = POLICY.charge(memory, in_time_tokens=served[0], late_tokens=served[1])
        in_time, late = in_time + served[0], late + served[1]
    assert late / (in_time + late) == pytest.approx(0.05, abs=0.002)


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
    decision = decided(*prompts)
    most = max(num_in_time(prompts, order) for order in permutations(range(len(prompts))))
    assert len(prompts) - len(decision.late) == most
    assert num_in_time(prompts, decision.order) >= most


@given(prompt_lists, st.floats(-100, 100))
def test_everybody_is_in_the_order_once(prompts: list[Prompt], credit_tokens: float) -> None:
    decision = decided(*prompts, memory=TriageMemory(credit_tokens))
    assert sorted(decision.order) == list(range(len(prompts)))
