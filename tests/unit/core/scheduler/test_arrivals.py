"""Prompt tokens that arrived lately."""

from pipelineserve.scheduler.arrivals import ArrivalWindow


def rate(window: ArrivalWindow, now_s: float) -> float:
    tokens, span_s = window.at(now_s)
    return tokens / span_s


def test_counts_what_arrived_within_the_window() -> None:
    window = ArrivalWindow(10.0)
    for second in range(20):
        window.add(100, float(second))
    assert window.at(19.0) == (1000, 10.0)
    assert window.at(40.0) == (0, 10.0)


def test_just_after_the_first_arrival_it_is_shorter_but_not_below_a_second() -> None:
    window = ArrivalWindow(10.0)
    window.add(100, 5.0)
    assert window.at(5.0) == (100, 1.0)
    assert window.at(8.0) == (100, 3.0)


def test_a_longer_window_does_not_spread_what_was_kept_for_a_shorter_one() -> None:
    window = ArrivalWindow(2.0)
    for tenth in range(200):
        window.add(10, tenth / 10)
    before = rate(window, 19.9)
    window.resize(60.0)
    assert abs(rate(window, 19.9) - before) / before < 0.06


def test_a_shorter_window_forgets_at_once() -> None:
    window = ArrivalWindow(10.0)
    for second in range(10):
        window.add(100, float(second))
    window.resize(2.0)
    assert window.at(9.0) == (200, 2.0)
