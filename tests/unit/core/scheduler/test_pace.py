"""The pace of prefill is measured only while prompts wait."""

from math import inf

import pytest

from pipelineserve.scheduler.pace import PrefillPace


def test_nothing_is_known_before_prompts_have_waited() -> None:
    pace = PrefillPace()
    pace.note_launch(100, 0.0, leaves_prompts=False)
    pace.note_launch(100, 1.0, leaves_prompts=False)
    assert (pace.tokens_per_s, pace.passage_s) == (inf, 0.0)


def test_tokens_count_over_the_time_to_the_next_launch() -> None:
    pace = PrefillPace()
    for now_s in (0.0, 0.5, 1.0):
        pace.note_launch(100, now_s, leaves_prompts=True)
    assert pace.tokens_per_s == pytest.approx(200.0)


def test_idle_time_does_not_count() -> None:
    pace = PrefillPace()
    pace.note_launch(100, 0.0, leaves_prompts=True)
    pace.note_launch(100, 0.5, leaves_prompts=False)
    pace.note_launch(100, 99.0, leaves_prompts=False)
    assert pace.tokens_per_s == pytest.approx(200.0)


def test_it_follows_a_change() -> None:
    pace = PrefillPace()
    for step in range(100):
        pace.note_launch(100, float(step), leaves_prompts=True)
    for step in range(100):
        pace.note_launch(300, 99.0 + step, leaves_prompts=True)
    assert pace.tokens_per_s == pytest.approx(300.0, rel=0.01)


def test_launches_that_take_no_time_are_no_measure() -> None:
    pace = PrefillPace()
    pace.note_launch(100, 1.0, leaves_prompts=True)
    pace.note_launch(100, 1.0, leaves_prompts=True)
    assert pace.tokens_per_s == inf


def test_a_time_without_any_prefill_tells_no_pace() -> None:
    pace = PrefillPace()
    pace.note_launch(0, 1.0, leaves_prompts=True)
    pace.note_launch(0, 2.0, leaves_prompts=True)
    assert pace.tokens_per_s == inf


def test_the_passage_is_that_of_the_latest_micro_batches() -> None:
    pace = PrefillPace()
    pace.note_return(2.0)
    assert pace.passage_s == 2.0
    for _ in range(200):
        pace.note_return(4.0)
    assert pace.passage_s == pytest.approx(4.0, rel=0.01)
