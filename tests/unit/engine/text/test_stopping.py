"""Stop strings are found wherever the text is split."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_engine.text.stopping import StopScanner

FEW_LETTERS = st.text(alphabet="ab", max_size=6)


def _scan(pieces: Iterable[str], stops: Sequence[str]) -> tuple[str, bool]:
    scanner = StopScanner(stops)
    shown = "".join(map(scanner.push, pieces)) + scanner.flush()
    return shown, scanner.has_stopped


def _reference(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    places = [text.find(stop) for stop in stops if stop in text]
    return (text[: min(places)], True) if places else (text, False)


@given(st.lists(FEW_LETTERS, max_size=8), st.lists(FEW_LETTERS.filter(bool), max_size=4))
def test_cuts_at_the_earliest_stop_however_the_text_is_split(
    pieces: list[str], stops: list[str]
) -> None:
    assert _scan(pieces, stops) == _reference("".join(pieces), stops)


@given(st.lists(FEW_LETTERS, max_size=8), st.lists(FEW_LETTERS.filter(bool), max_size=4))
def test_holds_back_only_what_may_begin_a_stop(pieces: list[str], stops: list[str]) -> None:
    scanner = StopScanner(stops)
    for end in range(1, len(pieces) + 1):
        scanner.push(pieces[end - 1])
        if scanner.has_stopped:
            return
        waiting = scanner._waiting
        assert (
            waiting == ""
            or any(stop.startswith(waiting) for stop in stops)
            or any(stop in waiting for stop in stops)
        )


def test_shows_text_at_once_without_stop_strings() -> None:
    assert StopScanner(()).push("abc") == "abc"


def test_waits_while_a_stop_may_begin_and_shows_the_rest() -> None:
    scanner = StopScanner(["END"])
    assert [scanner.push(piece) for piece in ("aE", "N", "b", "EN")] == ["a", "", "ENb", ""]
    assert scanner.flush() == "EN"
    assert not scanner.has_stopped


def test_shows_nothing_after_a_stop() -> None:
    scanner = StopScanner(["|"])
    assert scanner.push("a|b") == "a"
    assert scanner.has_stopped
    assert scanner.push("c") + scanner.flush() == ""


@pytest.mark.parametrize("pieces", [["abcd"], ["abc", "d"], ["a", "b", "c", "d"]])
def test_an_earlier_longer_stop_wins_over_a_shorter_one_inside_it(pieces: list[str]) -> None:
    assert _scan(pieces, ["abcd", "bc"]) == ("", True)


def test_a_shorter_stop_counts_when_the_longer_one_does_not_come_true() -> None:
    assert _scan(["abc"], ["abcd", "bc"]) == ("a", True)
    assert _scan(["abc", "x"], ["abcd", "bc"]) == ("a", True)
