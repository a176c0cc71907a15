"""Times of another host's clock, converted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_engine.remote.clocks import ClockOffset


def test_nothing_is_added_before_the_first_round_trip() -> None:
    assert ClockOffset().offset_s == 0.0


@given(
    offset_s=st.floats(-1e6, 1e6),
    trips=st.lists(
        st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 5.0), st.floats(0.0, 5.0)),
        min_size=1,
        max_size=20,
    ),
)
def test_is_wrong_by_half_the_quickest_round_trip_at_most(
    offset_s: float, trips: list[tuple[float, float, float]]
) -> None:
    clock = ClockOffset()
    now_s = 1000.0
    for there_s, held_s, back_s in trips:
        clock.note(
            sent_s=now_s,
            held_s=held_s,
            remote_s=now_s + there_s + held_s - offset_s,
            received_s=now_s + there_s + held_s + back_s,
        )
        now_s += 20.0
    bound_s = min(there_s + back_s for there_s, _, back_s in trips) / 2
    assert clock.offset_s == pytest.approx(offset_s, abs=bound_s + 1e-6)
