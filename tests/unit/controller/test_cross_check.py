"""The engine's metrics are compared with what Watch tells; one odd reading is no difference."""

import pytest

from control_turns import Course, make_engine, make_request, make_standing
from pipelineserve import metrics
from pipelineserve.policy.control.heard import Heard
from pipelineserve_controller.cross_check import CrossCheck, figures_of

PAGE = """
# TYPE pipelineserve_requests_total counter
pipelineserve_requests_total{outcome="stop"} 3
pipelineserve_requests_total{outcome="length"} 4
pipelineserve_requests_total{outcome="cancelled"} 50
# TYPE pipelineserve_requests_waiting gauge
pipelineserve_requests_waiting 2
# TYPE pipelineserve_kv_used_ratio gauge
pipelineserve_kv_used_ratio 0.25
"""
WAITING, FINISHED = metrics.REQUESTS_WAITING.name, metrics.REQUESTS.name


def heard(num_waiting: int = 0, num_requests: int = 0, epoch: int = 1) -> Heard:
    return Heard(
        now_s=1.0,
        engine=make_engine(epoch=epoch),
        standing=make_standing(num_waiting=num_waiting),
        steps=(),
        requests=(make_request(),) * num_requests,
        num_steps=0,
        num_lost=0,
        num_refused=0,
    )


def test_figures_are_read_from_a_page_of_metrics() -> None:
    assert figures_of(PAGE) == {FINISHED: 7.0, WAITING: 2.0, metrics.KV_USED.name: 0.25}


def test_a_malformed_page_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"[Ii]nvalid|[Ee]xpected|could not"):
        figures_of("pipelineserve_requests_waiting{ 2 2 2\n")


def test_a_gauge_that_differs_twice_is_told() -> None:
    check = CrossCheck("")
    check.hear(heard(num_waiting=3))
    check.compare({WAITING: 50.0})
    assert not check.differences
    check.compare({WAITING: 50.0})
    assert list(check.differences) == [f"{WAITING}: watch tells 3, metrics say 50"]


def test_a_difference_that_has_gone_is_no_longer_told() -> None:
    check = CrossCheck("")
    check.hear(heard(num_waiting=3))
    for shown in (50.0, 50.0, 3.0):
        check.compare({WAITING: shown})
    assert check.differences == ()


def test_what_is_nearly_the_same_is_no_difference() -> None:
    check = CrossCheck("")
    check.hear(heard(num_waiting=10))
    for shown in (9.0, 11.0, 12.0):
        check.compare({WAITING: shown})
    assert check.differences == ()


def test_finished_requests_are_compared_by_their_rise() -> None:
    check = CrossCheck("")
    check.hear(heard())
    check.compare({FINISHED: 1000.0})
    check.hear(heard(num_requests=20))
    check.compare({FINISHED: 1020.0})
    check.compare({FINISHED: 1020.0})
    assert check.differences == ()


def test_requests_that_watch_never_told_of_are_a_difference() -> None:
    check = CrossCheck("")
    check.hear(heard())
    for shown in (1000.0, 1050.0, 1050.0):
        check.compare({FINISHED: shown})
    assert "watch told of 0 finished requests, metrics of 50" in check.differences[0]


@pytest.mark.parametrize("shown", [5.0, 0.0])
def test_a_counter_that_began_anew_is_no_difference(shown: float) -> None:
    check = CrossCheck("")
    check.hear(heard(num_requests=100))
    for figure in (1000.0, shown, shown):
        check.compare({FINISHED: figure})
    assert check.differences == ()


def test_a_new_session_counts_anew() -> None:
    check = CrossCheck("")
    check.hear(heard(num_requests=100))
    check.compare({FINISHED: 1000.0})
    check.hear(heard(epoch=2))
    for figure in (2000.0, 2000.0):
        check.compare({FINISHED: figure})
    assert check.differences == ()


def test_a_difference_never_reaches_a_decision() -> None:
    """What decides takes what was heard and the objectives; there is no third input."""
    course = Course()
    turn, _ = course.train()
    assert turn.policy is not None
    assert "differ" not in str(turn)
