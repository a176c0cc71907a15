"""Verdicts follow from tolerances alone."""

import pytest

from pipelineserve_simulator.reproduce.findings import (
    Accept,
    Finding,
    RowResult,
    Unit,
    Verdict,
    within_points,
    within_ratio,
)


def finding(ours: float, accept: Accept | None = None) -> Finding:
    return Finding("a number", "1", ours, Unit.RATIO, accept)


@pytest.mark.parametrize(
    ("ours", "accept", "verdict"),
    [
        (1.1, within_ratio(1.0, 0.11), Verdict.FITS),
        (1.2, within_ratio(1.0, 0.11), Verdict.MISSES),
        (0.8, within_ratio(1.0, 0.11), Verdict.MISSES),
        (0.87, within_points(0.925, 7), Verdict.FITS),
        (0.85, within_points(0.925, 7), Verdict.MISSES),
        (5.0, None, Verdict.REPORTED),
    ],
)
def test_a_line(ours: float, accept: Accept | None, verdict: Verdict) -> None:
    assert finding(ours, accept).verdict is verdict


def test_a_row_misses_where_one_line_does_whatever_supports_it() -> None:
    good, bad = finding(1.0, within_ratio(1.0, 0.1)), finding(2.0, within_ratio(1.0, 0.1))
    told = finding(3.0)
    assert RowResult("r", "", (good, told)).verdict is Verdict.FITS
    assert RowResult("r", "", (good, bad, told)).verdict is Verdict.MISSES
    assert RowResult("r", "", (told,), supports=(bad,)).verdict is Verdict.REPORTED


def test_a_reason_is_told_only_for_a_miss() -> None:
    good, bad = finding(1.0, within_ratio(1.0, 0.1)), finding(2.0, within_ratio(1.0, 0.1))
    assert RowResult("r", "", (good,), "because").explanation == ""
    assert RowResult("r", "", (good, bad), "because").explanation == "because"


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (Unit.PERCENT, 0.925, "92.5 %"),
        (Unit.MS, 0.0517, "51.7 ms"),
        (Unit.S, -4.1, "-4.10 s"),
        (Unit.PER_S, 8.28, "8.28 /s"),
        (Unit.RATIO, 3.06, "3.06 x"),
        (Unit.TOKENS, 512.0, "512"),
    ],
)
def test_numbers_are_shown_in_their_unit(unit: Unit, value: float, text: str) -> None:
    assert unit.show(value) == text
