"""The picture: well-formed, only of its window, the longest prompt in its own colour."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import assume, given

from pipelineserve.errors import InvalidInputError
from pipelineserve_cli.traces.picture import _HIGHLIGHT, longest_prompt, picture
from pipelineserve_cli.traces.record import TraceRecord
from trace_records import a_record, records, sent, step, two_pieces_at_once

SVG = "{http://www.w3.org/2000/svg}"


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own picture


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in parse(svg).iter(f"{SVG}text")]


def test_shows_both_stages_the_pieces_and_an_axis() -> None:
    found = texts(picture(a_record(*two_pieces_at_once())))
    assert (
        "A prompt of 100 tokens goes through 2 stages in 2 pieces, among running answers" in found
    )
    pieces = [text for text in found if text.startswith("tokens ")]
    assert pieces == ["tokens 0–59", "tokens 60–99"] * 2  # noqa: RUF001 - as shown
    assert {"stage 0", "stage 1", "1 decode", "2 decodes", "time in ms"} <= set(found)


def test_draws_only_what_ran_in_the_window() -> None:
    svg = picture(a_record(*two_pieces_at_once()), 3.0, 4.0)
    assert "2 decodes" in texts(svg)
    assert "tokens 60–99" not in texts(svg)  # noqa: RUF001 - as shown


def test_colours_the_longest_prompt_and_no_other() -> None:
    lines = [sent(0, 0.0, [("short", 0, 5, False)]), sent(1, 2.0, [("long", 0, 50, False)])]
    record = a_record(*lines, step(0, 0, 0.0, 1.0), step(1, 0, 2.0, 3.0), num_stages=1)
    assert longest_prompt(record) == "long"
    rects = parse(picture(record, 0.0, 1.5)).iter(f"{SVG}rect")
    # The legend's own square is the only one.
    assert [rect.get("width") for rect in rects if rect.get("fill") == _HIGHLIGHT] == ["14"]


def test_a_window_without_work_is_refused_with_the_times_that_have_some() -> None:
    record = a_record(*two_pieces_at_once())
    with pytest.raises(InvalidInputError, match=r"nothing ran from 50\.000 s to 60\.000 s"):
        picture(record, 50.0, 60.0)
    with pytest.raises(InvalidInputError, match=r"--from-s < --to-s within 0 and 4\.000"):
        picture(record, 2.0, 1.0)


def test_points_at_the_arrival_of_the_prompt() -> None:
    assert "the long prompt arrives" in texts(picture(a_record(*two_pieces_at_once()), -1.0, 3.0))


@given(records())
def test_is_well_formed_and_within_its_page(record: TraceRecord) -> None:
    last_s = max((batch.back_s for batch in record.micro_batches), default=0.0)
    steps = [step for batch in record.micro_batches for step in batch.steps]
    assume(any(step.start_s < last_s and step.end_s > 0.0 for step in steps))
    svg = picture(record, 0.0, last_s)
    root = parse(svg)
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for rect in root.iter(f"{SVG}rect"):
        x, y, wide, high = (float(rect.get(n, "0")) for n in ("x", "y", "width", "height"))
        assert 0 <= x <= x + wide <= width + 0.02
        assert 0 <= y <= y + high <= height + 0.02
