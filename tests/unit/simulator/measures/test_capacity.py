"""The search finds the threshold, runs nothing twice, and says when its assumption fails."""

import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.errors import InvalidInputError
from pipelineserve.load.targets import Target, Targets
from pipelineserve_simulator.measures.capacity import (
    Bound,
    CapacitySearch,
    Run,
    find_capacity,
)
from pipelineserve_simulator.measures.criteria import p90_criteria, with_tail
from pipelineserve_simulator.measures.runs import RunOutcome
from simulated_runs import request_outcome, run_of

TARGETS = Targets(Target(90, 2.0), Target(90, 0.2))
CRITERIA = p90_criteria(TARGETS)
SEARCH = CapacitySearch(0.5, 32.0)


def late_above(threshold_of: Callable[[int], float], rate_per_s: float, seed: int) -> RunOutcome:
    """Every TTFT is the target times how far the rate is above the seed's threshold."""
    ttft_s = 2.0 * rate_per_s / threshold_of(seed)
    return run_of(
        request_outcome(index=i, arrival_s=i / rate_per_s, ttft_s=ttft_s) for i in range(20)
    )


@given(st.floats(0.6, 30), st.floats(0.001, 0.2))
def test_finds_the_threshold_of_a_monotone_system_within_the_tolerance(
    threshold: float, tolerance_ratio: float
) -> None:
    search = CapacitySearch(0.5, 32.0, tolerance_ratio, seeds=(1,))
    found = find_capacity(partial(late_above, lambda _: threshold), CRITERIA, search)
    assert found.bound is Bound.FOUND
    assert threshold / (1 + tolerance_ratio) * 0.999 <= found.capacity_per_s <= threshold * 1.001
    assert found.is_monotone


@given(st.lists(st.floats(0.6, 30), min_size=3, max_size=7).filter(lambda x: len(x) % 2 == 1))
def test_is_the_median_of_what_the_seeds_bear(thresholds: list[float]) -> None:
    search = CapacitySearch(0.5, 32.0, seeds=tuple(range(len(thresholds))))
    found = find_capacity(partial(late_above, thresholds.__getitem__), CRITERIA, search)
    assert found.capacity_per_s == pytest.approx(median(thresholds), rel=0.011)
    assert found.thresholds_per_s == pytest.approx(tuple(thresholds), rel=0.011)
    assert found.interval.low <= found.capacity_per_s * 1.01
    assert found.capacity_per_s <= found.interval.high * 1.01
    assert found.is_monotone


def test_says_when_the_bounds_do_not_hold_the_threshold() -> None:
    low = find_capacity(partial(late_above, lambda _: 0.2), CRITERIA, SEARCH)
    assert (low.bound, low.capacity_per_s) == (Bound.BELOW, 0.0)
    assert low.thresholds_per_s == (0.0,) * 5
    high = find_capacity(partial(late_above, lambda _: 50.0), CRITERIA, SEARCH)
    assert (high.bound, high.capacity_per_s) == (Bound.ABOVE, 32.0)
    assert high.thresholds_per_s == (math.inf,) * 5


def test_a_seed_that_breaks_down_does_not_decide() -> None:
    thresholds = {1: 8.0, 2: 8.2, 3: 0.1, 4: 8.1, 5: 7.9}
    found = find_capacity(partial(late_above, thresholds.__getitem__), CRITERIA, SEARCH)
    assert found.capacity_per_s == pytest.approx(8.0, rel=0.011)
    assert found.thresholds_per_s[2] == 0.0


def noisy(rate_per_s: float, seed: int) -> RunOutcome:
    noise = Random(f"{seed}/{rate_per_s}").lognormvariate(0.0, 0.05)
    return late_above(lambda _: 8.0, rate_per_s * noise, seed)


def test_noise_moves_the_result_by_no_more_than_the_noise() -> None:
    found = find_capacity(noisy, CRITERIA, CapacitySearch(0.5, 32.0, seeds=tuple(range(9))))
    assert found.capacity_per_s == pytest.approx(8.0, rel=0.08)
    assert found.interval.low <= 8.0 * 1.05
    assert found.interval.high >= 8.0 * 0.95


def with_a_hole(rate_per_s: float, seed: int) -> RunOutcome:
    is_hole = 6.0 < rate_per_s < 6.8
    return late_above(lambda _: 5.0 if is_hole else 8.0, rate_per_s, seed)


def test_a_lower_rate_that_fails_is_reported() -> None:
    found = find_capacity(with_a_hole, CRITERIA, SEARCH)
    assert not found.is_monotone
    assert found.num_contradicting_seeds == 5
    assert found.thresholds_per_s == pytest.approx((6.0,) * 5, rel=0.011)
    for lower, higher in found.contradictions:
        assert 6.0 < lower < 6.8 < higher <= 8.0


def test_nothing_is_run_twice() -> None:
    calls: Counter[tuple[float, int]] = Counter()

    def counted(rate_per_s: float, seed: int) -> RunOutcome:
        calls[rate_per_s, seed] += 1
        return late_above(lambda seed: 7.0 + seed, rate_per_s, seed)

    find_capacity(counted, CRITERIA, SEARCH)
    assert max(calls.values()) == 1
    assert len(calls) < 120


def test_a_pool_gives_the_same_result() -> None:
    run: Run = partial(late_above, lambda seed: 7.0 + seed)
    with ThreadPoolExecutor(2) as pool:
        assert find_capacity(run, CRITERIA, SEARCH, pool.map) == find_capacity(
            run, CRITERIA, SEARCH
        )


def starving(rate_per_s: float, seed: int) -> RunOutcome:
    """Two of a hundred prompts wait for long once the rate is above 4."""
    is_starving = rate_per_s > 4.0
    late_s = [100.0 if is_starving and i < 2 else 2.0 * rate_per_s / 8.0 for i in range(100)]
    return run_of(
        request_outcome(index=seed, arrival_s=i / rate_per_s, ttft_s=ttft_s)
        for i, ttft_s in enumerate(late_s)
    )


def test_the_tail_condition_sees_who_starves() -> None:
    assert find_capacity(starving, CRITERIA, SEARCH).capacity_per_s == pytest.approx(8, rel=0.011)
    tail = find_capacity(starving, with_tail(CRITERIA), SEARCH)
    assert tail.capacity_per_s == pytest.approx(4, rel=0.011)


def failing(rate_per_s: float, seed: int) -> RunOutcome:
    """A fifth of the requests fail above a rate of 3."""
    return run_of(
        request_outcome(
            index=seed, arrival_s=i / rate_per_s, is_success=rate_per_s <= 3.0 or i % 5 > 0
        )
        for i in range(20)
    )


def test_failed_requests_are_infinitely_late() -> None:
    found = find_capacity(failing, CRITERIA, SEARCH)
    assert found.capacity_per_s == pytest.approx(3.0, rel=0.011)


def warming_up(rate_per_s: float, _seed: int) -> RunOutcome:
    """The first eighth waits for long at any rate."""
    return run_of(
        request_outcome(arrival_s=i / rate_per_s, ttft_s=9.0 if i < 13 else 2.0 * rate_per_s / 8.0)
        for i in range(101)
    )


def test_the_steady_window_can_be_judged_instead() -> None:
    whole = find_capacity(warming_up, CRITERIA, SEARCH)
    assert whole.bound is Bound.BELOW
    steady = find_capacity(warming_up, CRITERIA, CapacitySearch(0.5, 32.0, is_steady=True))
    assert steady.capacity_per_s == pytest.approx(8.0, rel=0.011)


def test_an_impossible_search_is_refused_with_every_fault() -> None:
    with pytest.raises(InvalidInputError) as caught:
        CapacitySearch(4.0, 2.0, tolerance_ratio=0.0, seeds=(1, 1), probe_ratios=(-1.0,))
    fields = [fault.field for fault in caught.value.faults]
    assert fields == ["low_per_s", "tolerance_ratio", "seeds", "probe_ratios"]
