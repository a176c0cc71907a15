"""The engine's metrics are compared with what Watch tells; one odd reading is no difference."""

from dataclasses import replace

import pytest

from control_turns import Course, make_engine, make_request, make_standing
from pipelineserve import metrics
from pipelineserve.counterparts import REFRESH_S
from pipelineserve.policy.control.heard import Heard
from pipelineserve_controller.cross_check import PERIOD_S, CrossCheck, Reading, reading_of

PAGE = """
# TYPE pipelineserve_requests_total counter
pipelineserve_requests_total{outcome="stop"} 3
pipelineserve_requests_total{outcome="length"} 4
pipelineserve_requests_total{outcome="cancelled"} 50
# TYPE pipelineserve_requests_waiting gauge
pipelineserve_requests_waiting 2
# TYPE pipelineserve_kv_used_ratio gauge
pipelineserve_kv_used_ratio 0.25
# TYPE pipelineserve_tpot_seconds histogram
pipelineserve_tpot_seconds_bucket{le="0.1"} 4
pipelineserve_tpot_seconds_bucket{le="+Inf"} 6
pipelineserve_tpot_seconds_count 6
pipelineserve_tpot_seconds_sum 1.5
"""
SGLANG_PAGE = """
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="a",pp_rank="0",tp_rank="0"} 2
sglang:num_queue_reqs{engine_type="unified",model_name="a",pp_rank="1",tp_rank="0"} 2
sglang:num_queue_reqs{engine_type="unified",model_name="a",pp_rank="0",priority="3",tp_rank="0"} 1
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="a",pp_rank="0",tp_rank="0"} 4
# TYPE sglang:token_usage gauge
sglang:token_usage{engine_type="unified",model_name="a",pp_rank="0",tp_rank="0"} 0.25
sglang:token_usage{engine_type="unified",model_name="a",pp_rank="1",tp_rank="0"} 0.5
# TYPE sglang:num_requests counter
sglang:num_requests_total{is_streaming="true",model_name="a"} 9
# TYPE sglang:request_time_per_output_token_seconds histogram
sglang:request_time_per_output_token_seconds_bucket{is_streaming="true",le="+Inf",model_name="a"} 5
sglang:request_time_per_output_token_seconds_count{is_streaming="true",model_name="a"} 5
sglang:request_time_per_output_token_seconds_sum{is_streaming="true",model_name="a"} 0.5
sglang:request_time_per_output_token_seconds_count{is_streaming="false",model_name="a"} 1
sglang:request_time_per_output_token_seconds_sum{is_streaming="false",model_name="a"} 0.5
"""
WAITING, FINISHED = metrics.REQUESTS_WAITING.name, metrics.REQUESTS.name
TIMED = f"{metrics.TPOT.name}_count"
OF_BOTH = {TIMED: 6.0, WAITING: 2.0, metrics.KV_USED.name: 0.25}


def seen(**figures: float) -> Reading:
    return Reading({f"pipelineserve_{name}": value for name, value in figures.items()})


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
    assert reading_of(PAGE) == Reading({FINISHED: 7.0, **OF_BOTH})


def test_sglangs_figures_are_read_by_our_names_from_its_first_rank() -> None:
    assert reading_of(SGLANG_PAGE) == Reading(OF_BOTH, REFRESH_S)


def test_a_malformed_page_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"[Ii]nvalid|[Ee]xpected|could not"):
        reading_of("pipelineserve_requests_waiting{ 2 2 2\n")


def test_a_gauge_that_differs_twice_is_told() -> None:
    check = CrossCheck("")
    check.hear(heard(num_waiting=3))
    check.compare(seen(requests_waiting=50.0))
    assert not check.differences
    check.compare(seen(requests_waiting=50.0))
    assert list(check.differences) == [f"{WAITING}: watch tells 3, metrics say 50"]


def test_gauges_that_are_written_now_and_then_must_differ_for_longer_than_they_may_be_old() -> None:
    check = CrossCheck("")
    check.hear(heard(num_waiting=3))
    reading = Reading({WAITING: 50.0}, age_s=REFRESH_S)
    told_of = []
    for _ in range(6):
        check.compare(reading)
        told_of.append(bool(check.differences))
    num_needed = told_of.index(True) + 1
    assert (num_needed - 1) * PERIOD_S > REFRESH_S
    assert told_of == [False] * 4 + [True] * 2


def test_requests_with_a_tpot_are_compared_where_there_is_no_count_by_outcome() -> None:
    check = CrossCheck("")
    check.hear(heard())
    check.compare(Reading({TIMED: 1000.0}))
    check.hear(heard(num_requests=20))
    for shown in (1020.0, 1020.0):
        check.compare(Reading({TIMED: shown}))
    assert not check.differences
    for shown in (1050.0, 1050.0):
        check.compare(Reading({TIMED: shown}))
    expected = f"{TIMED}: watch told of 20 finished requests, metrics of 50"
    assert list(check.differences) == [expected]


def test_a_difference_that_has_gone_is_no_longer_told() -> None:
    check = CrossCheck("")
    check.hear(heard(num_waiting=3))
    for shown in (50.0, 50.0, 3.0):
        check.compare(seen(requests_waiting=shown))
    assert check.differences == ()


def test_what_is_nearly_the_same_is_no_difference() -> None:
    check = CrossCheck("")
    check.hear(heard(num_waiting=10))
    for shown in (9.0, 11.0, 12.0):
        check.compare(seen(requests_waiting=shown))
    assert check.differences == ()


def test_finished_requests_are_compared_by_their_rise() -> None:
    check = CrossCheck("")
    check.hear(heard())
    check.compare(seen(requests_total=1000.0))
    check.hear(heard(num_requests=20))
    check.compare(seen(requests_total=1020.0))
    check.compare(seen(requests_total=1020.0))
    assert check.differences == ()


def test_requests_that_watch_never_told_of_are_a_difference() -> None:
    check = CrossCheck("")
    check.hear(heard())
    for shown in (1000.0, 1050.0, 1050.0):
        check.compare(seen(requests_total=shown))
    assert "watch told of 0 finished requests, metrics of 50" in check.differences[0]


@pytest.mark.parametrize("shown", [5.0, 0.0])
def test_a_counter_that_began_anew_is_no_difference(shown: float) -> None:
    check = CrossCheck("")
    check.hear(heard(num_requests=100))
    for figure in (1000.0, shown, shown):
        check.compare(seen(requests_total=figure))
    assert check.differences == ()


def test_of_an_engine_that_tells_nothing_since_it_cannot_be_controlled_nothing_is_compared() -> (
    None
):
    check = CrossCheck("")
    engine = replace(make_engine(), inactive_reason="a hook is missing")
    check.hear(replace(heard(), engine=engine, standing=None))
    for shown in (1000.0, 1050.0, 1050.0):
        check.compare(seen(requests_total=shown))
    assert check.differences == ()


def test_a_new_session_counts_anew() -> None:
    check = CrossCheck("")
    check.hear(heard(num_requests=100))
    check.compare(seen(requests_total=1000.0))
    check.hear(heard(epoch=2))
    for figure in (2000.0, 2000.0):
        check.compare(seen(requests_total=figure))
    assert check.differences == ()


def test_a_difference_never_reaches_a_decision() -> None:
    """What decides takes what was heard and the objectives; there is no third input."""
    course = Course()
    turn, _ = course.train()
    assert turn.policy is not None
    assert "differ" not in str(turn)
