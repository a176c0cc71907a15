"""Bubbles come from two readings of the server's metrics, or are not claimed."""

import pytest

from pipelineserve_cli.load.stage_times import (
    StageTimes,
    bubble_ratios,
    parse_stage_times,
    read_stage_times,
)

TEXT = """\
# TYPE pipelineserve_work_seconds_total counter
pipelineserve_work_seconds_total 4.0
pipelineserve_stage_busy_seconds_total{stage="1"} 1.0
pipelineserve_stage_busy_seconds_total{stage="0"} 3.0
"""


def test_reads_work_and_each_stages_busy_time() -> None:
    assert parse_stage_times(TEXT) == StageTimes(4.0, (3.0, 1.0))


def test_metrics_of_another_server_say_nothing() -> None:
    assert parse_stage_times("vllm:num_requests_running 3\n") is None


def test_a_server_that_is_not_there_says_nothing() -> None:
    assert read_stage_times("http://127.0.0.1:1") is None


def test_a_bubble_is_the_share_of_the_work_time_in_which_a_stage_was_idle() -> None:
    before, after = StageTimes(4.0, (3.0, 1.0)), StageTimes(8.0, (6.0, 5.0))
    assert bubble_ratios(before, after) == (0.25, 0.0)
    assert bubble_ratios(StageTimes(0.0, ()), after) == (0.25, 0.375)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, StageTimes(1.0, (1.0,))),
        (StageTimes(1.0, (1.0,)), None),
        (StageTimes(1.0, (1.0,)), StageTimes(1.0, (1.0,))),
        (StageTimes(1.0, (1.0,)), StageTimes(2.0, (1.0, 1.0))),
    ],
)
def test_no_bubble_is_claimed_without_two_fitting_readings(
    before: StageTimes | None, after: StageTimes | None
) -> None:
    assert bubble_ratios(before, after) == ()
