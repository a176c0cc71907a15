"""Figures in a terminal: units always, a dash where nothing is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_cli.status.words import UNKNOWN, count, duration, percent, reason_text, sparkline


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0042, "4.2 ms"),
        (0.148, "148 ms"),
        (1.2, "1.20 s"),
        (12.34, "12.3 s"),
        (300.0, "300 s"),
        (None, UNKNOWN),
    ],
)
def test_a_span_has_three_digits_and_a_unit(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_what_is_not_known_is_no_zero() -> None:
    assert {count(None), percent(None), duration(None)} == {UNKNOWN}


def test_a_reason_of_a_newer_controller_is_shown_by_its_name() -> None:
    assert reason_text("demand_met") == "the smallest chunk that serves the demand"
    assert reason_text("moon_is_full") == "moon is full"


def test_a_sparkline_leaves_out_what_is_not_known() -> None:
    assert sparkline([0.0, None, 1.0], 3) == "▁ █"
    assert sparkline([None, None], 2) == ""


def test_a_sparkline_is_drawn_against_its_top() -> None:
    assert sparkline([1.0], 1, top=2.0) == "▅"


@given(
    st.lists(st.none() | st.floats(0.0, 1e6), min_size=1, max_size=400),
    st.integers(min_value=1, max_value=60),
)
def test_a_sparkline_fits_and_keeps_every_spike(values: list[float | None], width: int) -> None:
    line = sparkline(values, width)
    known = [value for value in values if value is not None]
    assert len(line) <= width
    assert bool(line) == bool(known)
    if max(known, default=0.0) > 0.0:
        assert "█" in line
