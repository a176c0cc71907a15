"""A failed pipeline is started again after a growing pause, until the budget is spent."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.recovery import RecoveryBudget, RecoveryDecision, RecoveryView

BUDGET = RecoveryBudget(max_restarts=3, window_s=100.0, first_pause_s=1.0, longest_pause_s=3.0)


def test_the_pause_doubles_with_each_failure_up_to_its_bound() -> None:
    failures = (10.0, 20.0, 30.0)
    pauses = [
        BUDGET.decide(RecoveryView(at_s, failures[: index + 1])).restart_at_s
        for index, at_s in enumerate(failures)
    ]
    assert pauses == [11.0, 22.0, 33.0]


def test_one_failure_more_than_the_budget_is_the_end() -> None:
    decision = BUDGET.decide(RecoveryView(40.0, (10.0, 20.0, 30.0, 40.0)))
    assert decision == RecoveryDecision(None, Reason.RECOVERY_BUDGET_SPENT)


def test_failures_before_the_window_are_forgotten() -> None:
    decision = BUDGET.decide(RecoveryView(500.0, (10.0, 20.0, 30.0, 500.0)))
    assert decision == RecoveryDecision(501.0, Reason.STAGES_FAILED)


def test_a_budget_of_none_never_restarts() -> None:
    budget = RecoveryBudget(max_restarts=0, window_s=100.0)
    assert budget.decide(RecoveryView(1.0, (1.0,))).restart_at_s is None


@given(
    gaps_s=st.lists(st.floats(0.0, 50.0), min_size=1, max_size=300),
    max_restarts=st.integers(0, 400),
)
def test_a_restart_is_never_in_the_past_nor_later_than_the_longest_pause(
    gaps_s: list[float], max_restarts: int
) -> None:
    budget = RecoveryBudget(max_restarts=max_restarts, window_s=1000.0)
    times_s = tuple(sum(gaps_s[: index + 1]) for index in range(len(gaps_s)))
    at_s = budget.decide(RecoveryView(times_s[-1], times_s)).restart_at_s
    assert at_s is None or 0.0 < at_s - times_s[-1] <= budget.longest_pause_s + 1e-6
