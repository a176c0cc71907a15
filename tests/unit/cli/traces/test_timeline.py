"""Work, busy time and bubbles add up, whatever the stages did."""

import pytest
from hypothesis import given

from pipelineserve_cli.traces.record import TraceRecord
from pipelineserve_cli.traces.summary import summarise_record
from pipelineserve_cli.traces.timeline import (
    Span,
    bubbles,
    busy_spans,
    num_consecutive,
    overlapping_pieces,
    total_s,
    work_spans,
)
from trace_records import a_record, records, sent, step, two_pieces_at_once


@given(records())
def test_busy_time_and_bubbles_are_the_time_with_work(record: TraceRecord) -> None:
    work_s = total_s(work_spans(record))
    for stage_index in range(record.num_stages):
        busy_s = total_s(busy_spans(record, stage_index))
        assert busy_s + total_s(bubbles(record, stage_index)) == work_s


@given(records())
def test_no_bubble_touches_the_time_in_which_its_stage_computes(record: TraceRecord) -> None:
    for stage_index in range(record.num_stages):
        for bubble in bubbles(record, stage_index):
            assert bubble.duration_s > 0
            for busy in busy_spans(record, stage_index):
                assert bubble.end_s <= busy.start_s or busy.end_s <= bubble.start_s


def test_a_stage_idles_while_a_micro_batch_is_on_another_one_only() -> None:
    record = a_record(*two_pieces_at_once())
    assert work_spans(record) == (Span(0.0, 4.0),)
    assert bubbles(record, 0) == (Span(1.75, 3.0), Span(3.25, 4.0))
    assert bubbles(record, 1) == (Span(0.0, 1.0), Span(3.0, 3.5))


def test_time_without_anything_in_flight_is_no_bubble() -> None:
    lines = [sent(i, 10.0 * i, [("r", i, 1, True)]) for i in range(2)]
    steps = [step(i, 0, 10.0 * i, 10.0 * i + 1) for i in range(2)]
    record = a_record(*lines, *steps, num_stages=1)
    assert bubbles(record, 0) == ()
    assert total_s(work_spans(record)) == 2.0


def test_sees_two_pieces_of_one_prompt_on_two_stages_at_once() -> None:
    record = a_record(*two_pieces_at_once())
    assert overlapping_pieces(record) == [("r", Span(1.0, 1.75))]
    assert num_consecutive(record) == 1


@pytest.mark.parametrize(
    ("second", "slot"),
    [(("other", 0, 40, False), 1), (("r", 60, 1, True), 1), (("r", 60, 40, False), 0)],
    ids=["another prompt", "a decode", "the same slot"],
)
def test_counts_only_pieces_of_the_same_prompt_in_another_slot(
    second: tuple[str, int, int, bool], slot: int
) -> None:
    record = a_record(
        sent(0, 0.0, [("r", 0, 60, False)], slot=0), sent(1, 0.0, [second], slot=slot)
    )
    assert num_consecutive(record) == 0


def test_pieces_that_run_one_after_the_other_do_not_overlap() -> None:
    lines = [sent(i, 2.0 * i, [("r", 60 * i, 60, False)], slot=i) for i in range(2)]
    steps = [step(i, j, 2.0 * i + j, 2.0 * i + j + 1) for i in range(2) for j in range(2)]
    assert overlapping_pieces(a_record(*lines, *steps)) == []


def test_sums_up_each_stage() -> None:
    summary = summarise_record(a_record(*two_pieces_at_once()))
    first, last = summary.stages
    assert (first.busy_ratio, last.busy_ratio) == (2.0 / 4, 2.5 / 4)
    assert (first.bubble_ratio, last.bubble_ratio) == (2.0 / 4, 1.5 / 4)
    assert first.longest_s == 1.0
    assert first.longest is not None
    assert first.longest.sequence == 0
    assert (summary.num_micro_batches, summary.num_overlaps, summary.is_cut) == (3, 1, False)


def test_sums_up_a_record_in_which_nothing_ran() -> None:
    summary = summarise_record(a_record())
    assert [(s.busy_ratio, s.bubble_ratio, s.longest) for s in summary.stages] == [(0, 0, None)] * 2
