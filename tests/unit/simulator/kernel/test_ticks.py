"""Seconds to ticks and back."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_simulator.kernel.ticks import TICKS_PER_S, to_seconds, to_ticks


def test_a_second_has_a_thousand_million_ticks() -> None:
    assert to_ticks(1.5) == 1_500_000_000
    assert to_seconds(250_000_000) == 0.25


@given(st.integers(min_value=0, max_value=10**7 * TICKS_PER_S))
def test_no_tick_of_a_hundred_days_is_lost_on_the_way_through_seconds(ticks: int) -> None:
    # A float has 53 bits: beyond 104 days two ticks may fall together.
    assert abs(to_ticks(to_seconds(ticks)) - ticks) <= 1
