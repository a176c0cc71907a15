"""Whether targets can be met at the present load, and if not, which ones could."""

from dataclasses import replace
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.candidates import candidate_sizes
from pipelineserve.policy.control.feasibility import (
    Load,
    Pipeline,
    Targets,
    judge,
    steady_state,
)
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import StepCoefficients, StepTimeModel
from policy_views import line_model, make_model

# The published system at 4 requests per second of Azure's lengths.
PIPELINE = Pipeline(make_model(), candidate_sizes(128, 2048, 128), num_slots=4, kv_tokens=325_000)
TARGETS = Targets(ttft_s=2.0, tpot_s=0.2)


def load_of(requests_per_s: float, prompt_tokens: float = 1215, output_tokens: float = 211) -> Load:
    return Load(
        prefill_tokens_per_s=requests_per_s * prompt_tokens,
        decode_tokens_per_s=requests_per_s * output_tokens,
        prompt_tokens=prompt_tokens,
        squared_prompt_tokens=2 * prompt_tokens**2,
        long_prompt_tokens=2.3 * prompt_tokens,
        decode_context_tokens=1320,
    )


def test_a_moderate_load_is_feasible_with_the_smallest_chunk_that_does_it() -> None:
    verdict = judge(PIPELINE, load_of(4.0), TARGETS)
    assert (verdict.is_feasible, verdict.reason) == (True, Reason.TARGETS_FEASIBLE)
    assert verdict.best is not None
    smaller = [size for size in PIPELINE.candidates if size < verdict.best.chunk_tokens]
    for size in smaller:
        state = steady_state(PIPELINE, load_of(4.0), TARGETS, size)
        assert state.ttft_s is None or state.ttft_s > 2.0 or state.tpot_s > 0.2


def test_sustained_capacity_is_where_other_studies_of_this_machine_find_it() -> None:
    # A zero-bubble pipeline within TPOT 200 ms sustains 6.35 requests per second of this load.
    assert judge(PIPELINE, load_of(5.0), TARGETS).is_feasible
    assert not judge(PIPELINE, load_of(6.5), TARGETS).is_feasible


def test_without_load_everything_is_feasible() -> None:
    verdict = judge(PIPELINE, load_of(0.0), TARGETS)
    assert (verdict.is_feasible, verdict.reason, verdict.best) == (True, Reason.NO_LOAD, None)


def test_a_load_beyond_every_chunk_says_what_share_could_be_served() -> None:
    verdict = judge(PIPELINE, load_of(20.0), TARGETS)
    assert (verdict.is_feasible, verdict.reason) == (False, Reason.LOAD_TOO_HIGH)
    assert (verdict.least_ttft_s, verdict.least_tpot_s) == (None, None)
    assert verdict.best is not None
    assert 1.0 < verdict.best.load_ratio < 10.0


def test_a_tpot_below_the_smallest_step_names_the_tpot_that_could_be_met() -> None:
    verdict = judge(PIPELINE, load_of(1.0), replace(TARGETS, tpot_s=0.05))
    assert verdict.reason is Reason.TPOT_TOO_STRICT
    assert verdict.least_ttft_s is None
    assert verdict.least_tpot_s is not None
    assert judge(PIPELINE, load_of(1.0), replace(TARGETS, tpot_s=verdict.least_tpot_s)).is_feasible
    below = replace(TARGETS, tpot_s=verdict.least_tpot_s - 1e-6)
    assert not judge(PIPELINE, load_of(1.0), below).is_feasible


def test_a_ttft_below_the_passage_of_a_long_prompt_names_the_ttft_that_could_be_met() -> None:
    verdict = judge(PIPELINE, load_of(1.0), replace(TARGETS, ttft_s=0.1))
    assert verdict.reason is Reason.TTFT_TOO_STRICT
    assert verdict.least_tpot_s is None
    assert verdict.least_ttft_s is not None
    assert judge(PIPELINE, load_of(1.0), replace(TARGETS, ttft_s=verdict.least_ttft_s)).is_feasible
    below = replace(TARGETS, ttft_s=verdict.least_ttft_s - 1e-6)
    assert not judge(PIPELINE, load_of(1.0), below).is_feasible


def test_targets_that_each_could_be_met_but_not_together_are_a_conflict() -> None:
    verdict = judge(PIPELINE, load_of(3.0), Targets(ttft_s=1.0, tpot_s=0.09))
    assert verdict.reason is Reason.TARGETS_CONFLICT
    assert verdict.least_ttft_s is not None
    assert verdict.least_tpot_s is not None
    assert verdict.least_ttft_s > 1.0
    assert verdict.least_tpot_s > 0.09


def test_targets_that_nothing_could_meet_alone_are_both_too_strict() -> None:
    verdict = judge(PIPELINE, load_of(1.0), Targets(ttft_s=0.05, tpot_s=0.05))
    assert verdict.reason is Reason.TARGETS_TOO_STRICT


def test_decodes_that_do_not_fit_the_kv_are_named_as_the_cause() -> None:
    verdict = judge(replace(PIPELINE, kv_tokens=20_000), load_of(4.0), TARGETS)
    assert (verdict.is_feasible, verdict.reason) == (False, Reason.KV_TOO_SMALL)


def test_a_target_that_is_not_set_is_met() -> None:
    assert judge(PIPELINE, load_of(4.0), Targets(ttft_s=None, tpot_s=0.2)).is_feasible
    assert judge(PIPELINE, load_of(4.0), Targets(ttft_s=2.0, tpot_s=None)).is_feasible


def test_decodes_alone_can_overload_a_small_chunk() -> None:
    load = replace(load_of(0.0), decode_tokens_per_s=20_000.0)
    state = steady_state(PIPELINE, load, TARGETS, 128)
    assert state.load_ratio >= 1.0
    assert state.ttft_s is None


def test_a_steady_state_is_the_arithmetic_of_a_simple_pipeline() -> None:
    # 10 ms and 0.1 ms per token: 500 tokens take 60 ms, in which 6 decodes and 120 tokens come.
    pipeline = Pipeline(line_model(), (500,), num_slots=2, kv_tokens=10**6)
    load = Load(2000.0, 100.0, 400.0, 160_000.0, 800.0, 1000.0)
    state = steady_state(pipeline, load, TARGETS, 500)
    assert state.tpot_s == pytest.approx(0.12)
    assert state.load_ratio == pytest.approx(120 / 494)
    assert state.kv_ratio == pytest.approx(2 * 6 * 1000 / 10**6)
    # The wait that one in ten exceeds, the pieces of a long prompt, and one cycle.
    load_ratio, room_per_s = 120 / 494, 494 / 0.06
    mean_wait_s = 160_000 / (2 * 400) / room_per_s / (1 - load_ratio)
    expected_s = mean_wait_s * log(load_ratio / 0.1) + 800 / room_per_s + 0.12
    assert state.ttft_s == pytest.approx(expected_s)
    slower = steady_state(replace(pipeline, cycle_overhead_s=0.03), load, TARGETS, 500)
    assert slower.tpot_s == pytest.approx(0.15)
    assert slower.ttft_s == pytest.approx(expected_s + 0.03)


def test_attention_among_prompts_counts_for_the_room_that_decodes_leave() -> None:
    squares = replace(line_model(), coefficients=StepCoefficients(squared_prefill_s=1e-7))
    past = replace(line_model(), coefficients=StepCoefficients(past_prefill_s=1e-7))
    load = Load(2000.0, 100.0, 1000.0, 1_000_000.0, 2000.0, 0.0)

    def step_s(model: StepTimeModel) -> float:
        return steady_state(Pipeline(model, (500,), 1, 10**6), load, TARGETS, 500).tpot_s

    with_squares, with_past = step_s(squares), step_s(past)
    room = 500 - 100 * with_squares
    assert with_squares == pytest.approx(0.06 + 1e-7 * room * room)
    room = 500 - 100 * with_past
    assert with_past == pytest.approx(0.06 + 1e-7 * room * (1000 - room) / 2)


def test_a_nearly_idle_pipeline_makes_nobody_wait() -> None:
    pipeline = Pipeline(line_model(), (500,), num_slots=2, kv_tokens=10**6)
    load = Load(500.0, 0.0, 400.0, 160_000.0, 800.0, 1000.0)
    state = steady_state(pipeline, load, TARGETS, 500)
    assert state.ttft_s == pytest.approx(800 / (500 / 0.06) + 0.12)


def test_the_closest_chunk_is_named_when_none_meets_the_targets() -> None:
    both = judge(PIPELINE, load_of(3.0), Targets(ttft_s=1.0, tpot_s=0.09)).best
    only_ttft = judge(PIPELINE, load_of(3.0), Targets(ttft_s=0.5, tpot_s=None)).best
    only_tpot = judge(PIPELINE, load_of(3.0), Targets(ttft_s=None, tpot_s=0.05)).best
    assert both is not None
    assert only_ttft is not None
    assert only_tpot is not None
    # 128 takes 1.59 times the TTFT; 256 takes 1.23 times the TPOT and the least TTFT.
    assert (both.chunk_tokens, only_ttft.chunk_tokens, only_tpot.chunk_tokens) == (256, 256, 128)


@given(
    rates=st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)),
    ttft_s=st.floats(0.1, 10),
    tpot_s=st.floats(0.02, 1),
)
def test_less_load_is_feasible_wherever_more_is(
    rates: tuple[float, float], ttft_s: float, tpot_s: float
) -> None:
    targets = Targets(ttft_s, tpot_s)
    if judge(PIPELINE, load_of(max(rates)), targets).is_feasible:
        assert judge(PIPELINE, load_of(min(rates)), targets).is_feasible


@given(
    rate=st.floats(0.1, 8),
    ttfts_s=st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)),
    tpots_s=st.tuples(st.floats(0.02, 1), st.floats(0.02, 1)),
)
def test_looser_targets_are_feasible_wherever_stricter_ones_are(
    rate: float, ttfts_s: tuple[float, float], tpots_s: tuple[float, float]
) -> None:
    if judge(PIPELINE, load_of(rate), Targets(min(ttfts_s), min(tpots_s))).is_feasible:
        assert judge(PIPELINE, load_of(rate), Targets(max(ttfts_s), max(tpots_s))).is_feasible
