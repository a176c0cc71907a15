"""Reading a record: what a killed server left is read, what is no record is named."""

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_cli.traces.record import Piece, Step, parse_record
from trace_records import a_record, header, sent, text_of, two_pieces_at_once


def test_times_count_from_the_start_of_the_record() -> None:
    record = a_record(*two_pieces_at_once())
    first = record.micro_batches[0]
    assert first.sent_s == 0.0
    assert first.steps == (Step(0, 0.0, 1.0), Step(1, 1.0, 2.0))
    assert first.pieces == (Piece("d", 9, 1, is_decode=True), Piece("r", 0, 60, is_decode=False))
    assert (first.num_decodes, first.num_prefill_tokens, first.num_tokens) == (1, 60, 61)
    assert record.ended["r"].arrival_s == -0.5
    assert not record.is_cut


def test_half_a_line_at_the_end_is_left_out_and_said() -> None:
    text = text_of([header(), sent(0, 0.0, [("r", 0, 1, False)])]) + '{"type":"ste'
    record = parse_record(text, "record")
    assert len(record.micro_batches) == 1
    assert record.is_cut


def test_a_record_that_met_its_bound_is_cut() -> None:
    assert a_record({"type": "full", "at_s": 1.0}).is_cut


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected a header"),
        ("half a line", "line 1: expected a header"),
        (text_of([sent(0, 0.0, [])]), "line 1: expected a header"),
        (text_of([{**header(), "version": 9}]), "line 1: got version 9, expected 2"),
        (text_of([header()]) + "not json\n", "line 2: expected a JSON object"),
        (text_of([header(), {"type": "other"}]), 'line 2: expected an object whose "type"'),
        (text_of([header()]) + "7\n", 'line 2: expected an object whose "type"'),
        (text_of([header(), {"type": "sent"}]), "a line lacks a field"),
    ],
)
def test_names_the_line_of_what_is_no_record(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_record(text, "some.jsonl")
