"""Closed formulas: their limits, and the numbers that their sources print."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipelineserve_simulator.planning.formulas import (
    all_reduce_s,
    batch_time_s,
    bubble_ratio,
    end_to_end_s,
    fewest_micro_batches,
    kv_bytes_per_token,
    mean_wait_s,
    optimal_micro_batches,
    pipeline_efficiency,
    pipeline_gain,
    requests_inside,
    stage_weights_bytes,
)

COUNTS = st.integers(1, 1000)
STAGES = st.integers(1, 64)
ROUNDS = st.integers(1, 16)
TIMES = st.floats(1e-6, 100)


def test_four_stages_with_four_micro_batches_work_four_sevenths_of_the_time() -> None:
    assert pipeline_efficiency(4, 4) == pytest.approx(4 / 7)
    assert bubble_ratio(4, 4) == pytest.approx(3 / 7)


def test_two_virtual_stages_halve_the_bubble_over_the_work() -> None:
    def idle_over_work(rounds: int) -> float:
        bubble = bubble_ratio(8, 4, rounds)
        return bubble / (1 - bubble)

    assert idle_over_work(1) == pytest.approx(3 / 8)
    assert idle_over_work(2) == pytest.approx(3 / 16)


@given(COUNTS, STAGES, ROUNDS)
def test_efficiency_is_a_share_and_one_without_a_pipeline(m: int, p: int, v: int) -> None:
    assert 0 < pipeline_efficiency(m, p, v) <= 1
    assert pipeline_efficiency(m, 1, v) == 1
    assert pipeline_efficiency(m, p, v) + bubble_ratio(m, p, v) == pytest.approx(1)


@given(COUNTS, st.integers(2, 64), ROUNDS)
def test_efficiency_grows_with_micro_batches_and_rounds_and_falls_with_stages(
    m: int, p: int, v: int
) -> None:
    here = pipeline_efficiency(m, p, v)
    assert pipeline_efficiency(m + 1, p, v) > here
    assert pipeline_efficiency(m, p, v + 1) > here
    assert pipeline_efficiency(m, p + 1, v) < here


@given(STAGES)
def test_a_lone_micro_batch_uses_one_stage_at_a_time_and_endless_ones_all(p: int) -> None:
    assert pipeline_efficiency(1, p) == pytest.approx(1 / p)
    assert pipeline_efficiency(10**9, p) == pytest.approx(1, abs=1e-6)


@given(st.floats(0, 0.99), STAGES, ROUNDS)
def test_the_fewest_micro_batches_reach_the_efficiency_and_one_less_does_not(
    e: float, p: int, v: int
) -> None:
    m = fewest_micro_batches(e, p, v)
    assert pipeline_efficiency(m, p, v) >= e - 1e-9
    assert m == 1 or pipeline_efficiency(m - 1, p, v) < e


def test_four_fifths_of_the_time_take_four_micro_batches_per_further_stage() -> None:
    assert fewest_micro_batches(0.8, 5) == 16


@given(TIMES, TIMES, STAGES, COUNTS)
def test_no_number_of_micro_batches_is_better_than_the_optimal_one(
    work_s: float, overhead_s: float, p: int, other: int
) -> None:
    assume(work_s / overhead_s < 1e6)
    best = optimal_micro_batches(work_s, overhead_s, p)
    best_s, other_s = (batch_time_s(work_s, overhead_s, p, m) for m in (best, other))
    assert best_s <= other_s * (1 + 1e-12)


@given(TIMES, TIMES)
def test_one_stage_gains_nothing_by_cutting_its_work(work_s: float, overhead_s: float) -> None:
    assert optimal_micro_batches(work_s, overhead_s, 1) == 1


def test_dearer_steps_make_larger_pieces() -> None:
    assert optimal_micro_batches(0.3, 0.001, 4) == 30
    assert optimal_micro_batches(0.3, 0.004, 4) == 15


@given(st.floats(1, 1e9), st.integers(2, 64), TIMES, st.floats(1e6, 1e12))
def test_a_ring_sends_between_once_and_twice_the_data(
    sent: float, num: int, latency_s: float, rate: float
) -> None:
    moved_s = all_reduce_s(sent, num, latency_s, rate) - latency_s
    assert moved_s == pytest.approx(2 * (num - 1) / num * sent / rate, abs=latency_s * 1e-9)
    assert all_reduce_s(sent, 1, latency_s, rate) == 0


@given(TIMES, STAGES)
def test_over_an_endless_link_stages_gain_nothing_over_shards(compute_s: float, num: int) -> None:
    assert pipeline_gain(compute_s, 0, 0, num, 1) == pytest.approx(1)
    assert pipeline_gain(compute_s, 0, 0, num, 0.7) == pytest.approx(0.7)


@given(TIMES, TIMES, TIMES, STAGES)
def test_a_slower_exchange_speaks_for_stages_and_a_slower_hand_off_against_them(
    compute_s: float, exchange_s: float, hand_off_s: float, num: int
) -> None:
    gain = pipeline_gain(compute_s, exchange_s, hand_off_s, num, 1)
    assert pipeline_gain(compute_s, 2 * exchange_s, hand_off_s, num, 1) > gain
    assert pipeline_gain(compute_s, exchange_s, 2 * hand_off_s, num, 1) < gain


def test_kv_of_qwen_32b_is_64_kib_per_token_on_each_of_four_stages() -> None:
    assert kv_bytes_per_token(64 // 4, 8, 128, 2) == 64 * 1024


@given(st.integers(1, 200), st.integers(1, 128), st.integers(1, 512), st.sampled_from([1, 2, 4]))
def test_kv_of_all_layers_is_the_sum_of_the_layers(
    layers: int, heads: int, size: int, element: int
) -> None:
    whole = kv_bytes_per_token(layers, heads, size, element)
    assert whole == layers * kv_bytes_per_token(1, heads, size, element)


@given(st.integers(1, 100), st.integers(1, 10**9), st.integers(0, 10**9), st.integers(1, 8))
def test_the_shards_of_a_stage_hold_it_together(
    layers: int, layer: int, ends: int, shards: int
) -> None:
    share = stage_weights_bytes(layers, layer, ends, shards)
    assert share * shards == pytest.approx(layers * layer + ends)


@given(st.floats(0, 0.99), TIMES, st.floats(1, 10))
def test_waits_grow_without_bound_towards_a_full_load(
    load: float, mean_s: float, spread: float
) -> None:
    squared = spread * mean_s**2
    assert mean_wait_s(0, mean_s, squared) == 0
    assert mean_wait_s(load + 0.005, mean_s, squared) > mean_wait_s(load, mean_s, squared)
    assert mean_wait_s(1, mean_s, squared) == math.inf


def test_a_half_loaded_server_of_equal_jobs_makes_them_wait_half_a_job() -> None:
    assert mean_wait_s(0.5, 2.0, 4.0) == pytest.approx(1.0)


@given(TIMES, TIMES, TIMES, TIMES, st.floats(1, 1e4))
def test_end_to_end_is_the_first_token_and_then_one_tpot_each(
    wait_s: float, prefill_s: float, passage_s: float, tpot_s: float, tokens: float
) -> None:
    first_s = end_to_end_s(wait_s, prefill_s, passage_s, tpot_s, 1)
    assert first_s == pytest.approx(wait_s + prefill_s + passage_s)
    whole_s = end_to_end_s(wait_s, prefill_s, passage_s, tpot_s, tokens)
    assert whole_s == pytest.approx(first_s + (tokens - 1) * tpot_s)


@given(st.floats(0, 1e3), st.floats(0, 1e3))
def test_as_many_are_inside_as_arrive_during_a_stay(rate_per_s: float, stay_s: float) -> None:
    assert requests_inside(rate_per_s, stay_s) == rate_per_s * stay_s
