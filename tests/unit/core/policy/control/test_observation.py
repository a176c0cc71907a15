"""What is known from what was heard, and every way in which input must not be followed."""

from dataclasses import replace

import pytest

from control_turns import Course, make_engine, make_request, make_standing, make_step
from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.heard import Ending
from pipelineserve.policy.control.observation import FROZEN_AFTER_S, STALE_AFTER_S
from pipelineserve.policy.reasons import Reason


def settled() -> Course:
    """A course whose input has been fresh for long."""
    course = Course()
    course.last(10.0)
    assert course.turn()[1].freshness is Reason.INPUT_FRESH
    return course


def test_input_that_never_came_is_missing() -> None:
    course = Course(standing=lambda _: None)
    observation = course.last(10.0)[1]
    assert observation.freshness is Reason.INPUT_MISSING
    assert observation.standing is None
    assert observation.age_s is None


def test_without_a_session_the_engine_is_disconnected() -> None:
    course = settled()
    course.engine = None
    assert course.turn()[1].freshness is Reason.ENGINE_DISCONNECTED


def test_silence_makes_input_stale_after_a_while_and_not_before() -> None:
    course = settled()
    course.standing = lambda _: None
    assert course.last(STALE_AFTER_S - 0.4)[1].freshness is Reason.INPUT_FRESH
    observation = course.last(0.8)[1]
    assert observation.freshness is Reason.INPUT_STALE
    assert observation.age_s is not None
    assert observation.age_s > STALE_AFTER_S


def test_what_is_stale_keeps_its_last_values_instead_of_zeros() -> None:
    course = settled()
    course.standing = lambda now_s: make_standing(now_s, num_waiting=7, kv_free_ratio=0.3)
    course.turn()
    course.standing = lambda _: None
    observation = course.last(STALE_AFTER_S + 1.0)[1]
    assert observation.standing is not None
    assert (observation.standing.num_waiting, observation.standing.kv_free_ratio) == (7, 0.3)


def test_impossible_records_alone_are_not_followed() -> None:
    course = settled()
    course.standing = lambda _: None
    assert course.turn(num_refused=1)[1].freshness is Reason.INPUT_NOT_FINITE


def test_an_impossible_first_snapshot_is_not_a_missing_one() -> None:
    course = Course(standing=lambda _: None)
    assert course.turn(num_refused=1)[1].freshness is Reason.INPUT_NOT_FINITE


def test_one_impossible_record_among_good_ones_is_only_left_out() -> None:
    assert settled().turn(num_refused=1)[1].freshness is Reason.INPUT_FRESH


def test_an_engine_whose_clock_stands_still_is_frozen() -> None:
    course = settled()
    course.standing = lambda _: make_standing(5000.0)
    course.turn()
    assert course.last(STALE_AFTER_S - 0.4)[1].freshness is Reason.INPUT_FRESH
    assert course.last(0.8)[1].freshness is Reason.INPUT_FROZEN


def test_work_that_makes_no_step_is_frozen_although_the_clock_goes_on() -> None:
    course = settled()
    course.standing = lambda now_s: make_standing(now_s, num_running=3)
    assert course.last(FROZEN_AFTER_S - 0.4)[1].freshness is Reason.INPUT_FRESH
    assert course.last(1.0)[1].freshness is Reason.INPUT_FROZEN


def test_an_idle_engine_may_make_no_steps_for_ever() -> None:
    assert settled().last(10 * FROZEN_AFTER_S)[1].freshness is Reason.INPUT_FRESH


def test_requests_that_are_all_held_need_no_steps() -> None:
    course = settled()
    course.standing = lambda now_s: make_standing(now_s, num_running=3, num_held=3)
    assert course.last(2 * FROZEN_AFTER_S)[1].freshness is Reason.INPUT_FRESH


def test_slow_steps_are_not_taken_for_frozen_ones() -> None:
    course = settled()
    course.turn(steps=[make_step(1, time_s=0.5)])
    course.standing = lambda now_s: make_standing(now_s, num_running=1)
    assert course.last(2 * FROZEN_AFTER_S)[1].freshness is Reason.INPUT_FRESH


def test_an_engine_clock_that_goes_back_is_a_reset() -> None:
    course = settled()
    course.engine_now_s = 3.0
    assert course.turn()[1].freshness is Reason.INPUT_RESET


def test_micro_batches_that_are_numbered_anew_are_a_reset() -> None:
    course = settled()
    course.turn(steps=[make_step(50)])
    observation = course.turn(steps=[make_step(2)])[1]
    assert observation.freshness is Reason.INPUT_RESET


def test_a_reset_forgets_the_last_seconds_and_keeps_the_window() -> None:
    course = settled()
    course.turn(requests=[make_request(ttft_s=1.0)])
    assert course.turn()[1].recent_ttft_s is not None
    course.engine_now_s = 3.0
    observation = course.turn()[1]
    assert observation.recent_ttft_s is None
    assert observation.ttft.num_values == 1


def test_good_input_must_last_before_it_is_followed_again() -> None:
    course = settled()
    course.engine = None
    course.turn()
    course.engine = make_engine(epoch=2)
    observation = course.turn()[1]
    assert observation.freshness is Reason.INPUT_RECOVERING
    assert observation.recovering_ratio == 0.0
    assert course.last(1.4)[1].freshness is Reason.INPUT_RECOVERING
    observation = course.last(1.0)[1]
    assert observation.freshness is Reason.INPUT_FRESH
    assert 0.0 < observation.recovering_ratio < 1.0
    assert course.last(5.0)[1].recovering_ratio == 1.0


def test_another_engine_is_told_apart_from_a_new_session_of_the_same() -> None:
    course = settled()
    course.engine = make_engine(epoch=2)
    assert not course.turn()[1].is_new_engine
    course.engine = make_engine(epoch=3, max_chunk_tokens=4096)
    assert course.turn()[1].is_new_engine


def test_another_engine_after_a_disconnection_is_noticed() -> None:
    course = settled()
    course.engine = None
    course.turn()
    course.engine = make_engine(epoch=3, name="other")
    assert course.turn()[1].is_new_engine


def test_percentiles_over_the_window_count_held_time_as_it_was_told() -> None:
    course = settled()
    requests = [make_request(ttft_s=0.1 * k, tpot_s=0.01 * k) for k in range(1, 11)]
    observation = course.turn(requests=requests)[1]
    assert observation.ttft.percentile(90) == pytest.approx(0.9, rel=0.02)
    assert observation.tpot.percentile(90) == pytest.approx(0.09, rel=0.02)


def test_requests_older_than_the_window_no_longer_count() -> None:
    course = settled()
    course.turn(requests=[make_request()])
    assert course.last(50.0)[1].num_judged == 1
    assert course.last(15.0)[1].num_judged == 0


def test_memory_of_a_long_time_is_bounded() -> None:
    course = Course()
    for _ in range(1500):
        course.turn(requests=[make_request()])
    assert len(course.memory.observation.window.slices) <= 32
    assert len(course.memory.observation.recent.slices) <= 32


@pytest.mark.parametrize(
    ("request_seen", "num_judged", "num_attained"),
    [
        (make_request(), 1, 1),
        (make_request(ttft_s=2.5), 1, 0),
        (make_request(tpot_s=0.3), 1, 0),
        (make_request(tpot_s=None), 1, 1),
        (make_request(ending=Ending.REJECTED, ttft_s=None, tpot_s=None), 1, 0),
        (make_request(ending=Ending.ERROR), 1, 0),
        (make_request(ending=Ending.CANCELLED), 0, 0),
    ],
)
def test_attainment_judges_each_request_once(
    request_seen: object, num_judged: int, num_attained: int
) -> None:
    observation = settled().turn(requests=[request_seen])[1]  # type: ignore[list-item]
    assert (observation.num_judged, observation.num_attained) == (num_judged, num_attained)


def test_new_targets_judge_new_requests_only() -> None:
    course = settled()
    course.turn(requests=[make_request()])
    assert course.objectives.ttft is not None
    course.with_objectives(ttft=replace(course.objectives.ttft, target_s=0.1))
    observation = course.turn(requests=[make_request()])[1]
    assert (observation.num_judged, observation.num_attained) == (1, 0)
    assert observation.ttft.num_values == 2


def test_targets_are_met_when_both_percentiles_are_within_them() -> None:
    observation = settled().turn(requests=[make_request()])[1]
    assert (observation.slo_met, observation.slo_reason) == (Answer.YES, Reason.TARGETS_MET)


@pytest.mark.parametrize("late", [make_request(ttft_s=2.5), make_request(tpot_s=0.3)])
def test_targets_are_missed_when_one_percentile_is_not(late: object) -> None:
    observation = settled().turn(requests=[late] * 2)[1]  # type: ignore[list-item]
    assert (observation.slo_met, observation.slo_reason) == (Answer.NO, Reason.TARGETS_MISSED)


def test_a_few_late_requests_do_not_miss_a_percentile() -> None:
    requests = [make_request()] * 95 + [make_request(ttft_s=9.0)] * 5
    assert settled().turn(requests=requests)[1].slo_met is Answer.YES


def test_without_traffic_nothing_is_known() -> None:
    observation = settled().turn()[1]
    assert (observation.slo_met, observation.slo_reason) == (Answer.UNKNOWN, Reason.NO_TRAFFIC)


def test_a_queue_in_which_nobody_gets_a_first_token_is_a_miss() -> None:
    course = settled()
    course.standing = lambda now_s: make_standing(now_s, num_waiting=1, oldest_wait_s=2.5)
    observation = course.turn()[1]
    assert (observation.slo_met, observation.slo_reason) == (Answer.NO, Reason.QUEUE_LATE)


def test_stale_input_answers_nothing() -> None:
    course = settled()
    course.turn(requests=[make_request()])
    course.standing = lambda _: None
    assert course.last(STALE_AFTER_S + 1.0)[1].slo_met is Answer.UNKNOWN


def test_tpot_of_those_that_decode_now_goes_before_that_of_the_finished() -> None:
    course = settled()
    course.turn(requests=[make_request(tpot_s=0.05)])
    assert course.turn()[1].recent_tpot_s == pytest.approx(0.05, rel=0.02)
    tpot_s = (0.1, 0.15, 0.19)
    course.standing = lambda now_s: make_standing(now_s, running_tpot_s=tpot_s)
    assert course.turn()[1].recent_tpot_s == 0.15


def test_bubbles_are_the_share_of_idle_time_of_each_stage() -> None:
    observation = settled().turn(steps=[make_step(1), make_step(2)])[1]
    assert observation.bubble_ratios == pytest.approx((0.2,) * 4)


def test_load_counts_the_growth_of_the_queue_as_arrivals() -> None:
    course = settled()
    course.turn(requests=[make_request(prompt_tokens=100)])
    course.last(20.0)
    served = course.turn()[1].load
    course.standing = lambda now_s: make_standing(now_s, num_waiting=9, waiting_tokens=900)
    grown = course.turn()[1].load
    assert served is not None
    assert grown is not None
    assert grown.prefill_tokens_per_s == pytest.approx(10 * served.prefill_tokens_per_s, rel=0.05)
