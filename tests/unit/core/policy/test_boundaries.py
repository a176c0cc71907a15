"""Hardware boundaries and tables out of measured step times."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.boundaries import TimedStep, find_boundaries, table_of

Curve = list[TimedStep]


def stairs(tread: int, *, every: int, last: int, riser_s: float = 0.01) -> Curve:
    """A base of 10 ms and a riser after each multiple of `tread`."""
    return [
        TimedStep(tokens, 0.01 + riser_s * ((tokens - 1) // tread))
        for tokens in range(every, last + 1, every)
    ]


def noisy(curve: Curve, ratio: float, repeats: int = 5) -> Curve:
    stream = Random(3)
    return [
        TimedStep(step.num_tokens, step.time_s * (1 + stream.gauss(0.0, ratio)))
        for step in curve
        for _ in range(repeats)
    ]


@pytest.mark.parametrize(("tread", "every"), [(128, 1), (128, 32), (96, 16), (256, 64), (100, 25)])
def test_finds_each_stair_wherever_it_lies(tread: int, every: int) -> None:
    curve = stairs(tread, every=every, last=4 * tread)
    assert find_boundaries(curve) == (tread, 2 * tread, 3 * tread)


def test_finds_stairs_of_unequal_width_and_height() -> None:
    times_s = {16: 10, 32: 10, 48: 18, 64: 18, 80: 18, 96: 18, 112: 30, 128: 30}
    curve = [TimedStep(tokens, time_s / 1000) for tokens, time_s in times_s.items()]
    assert find_boundaries(curve) == (32, 96)


def test_noise_of_half_a_percent_hides_no_stair_and_makes_none() -> None:
    assert find_boundaries(noisy(stairs(128, every=32, last=640), 0.005)) == (128, 256, 384, 512)
    line = [TimedStep(tokens, 0.01 + 1e-4 * tokens) for tokens in range(32, 641, 32)]
    assert find_boundaries(noisy(line, 0.005)) == ()


def test_a_rise_within_three_widths_of_the_noise_is_no_boundary() -> None:
    def curve(rise_ratio: float) -> Curve:
        times_s = (1.0, 1.0, 1.0 + rise_ratio, 1.0 + rise_ratio)
        return [TimedStep(tokens, time_s) for tokens, time_s in enumerate(times_s, start=1)]

    assert find_boundaries(curve(0.029), noise_ratio=0.01) == ()
    assert find_boundaries(curve(0.031), noise_ratio=0.01) == (2,)


def test_a_straight_line_has_no_boundary() -> None:
    assert find_boundaries([TimedStep(tokens, 1e-4 * tokens) for tokens in range(1, 500)]) == ()


def test_two_measurements_cannot_show_a_stair() -> None:
    assert find_boundaries([TimedStep(1, 0.01), TimedStep(500, 0.9)]) == ()


def test_the_order_of_measurements_does_not_matter() -> None:
    curve = stairs(64, every=16, last=256)
    assert find_boundaries(reversed(curve)) == find_boundaries(curve)


def test_one_bad_measurement_of_several_is_outvoted() -> None:
    curve = stairs(128, every=32, last=256) * 3 + [TimedStep(64, 9.0)]
    assert find_boundaries(curve) == (128,)


def test_a_table_keeps_measurements_that_never_fall() -> None:
    curve = stairs(128, every=64, last=384)
    table = table_of(curve)
    assert [table.at(step.num_tokens) for step in curve] == [step.time_s for step in curve]


def test_a_dip_is_levelled_to_its_mean() -> None:
    table = table_of([TimedStep(1, 1.0), TimedStep(2, 3.0), TimedStep(3, 2.0), TimedStep(4, 5.0)])
    assert table.times_s == (1.0, 2.5, 2.5, 5.0)


def test_a_table_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token count"):
        table_of([])


@given(
    st.lists(
        st.builds(TimedStep, st.integers(1, 300), st.floats(1e-6, 10.0)), min_size=1, max_size=80
    )
)
def test_any_measurements_give_a_table_with_their_mean(steps: Curve) -> None:
    table = table_of(steps)
    medians = table_of(sorted(steps, key=lambda step: step.num_tokens))
    assert table == medians
    assert set(table.tokens) == {step.num_tokens for step in steps}
    assert min(s.time_s for s in steps) * 0.999 <= table.times_s[0]
    assert table.times_s[-1] <= max(s.time_s for s in steps) * 1.001
