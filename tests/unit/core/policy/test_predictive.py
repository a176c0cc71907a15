"""The smallest chunk that serves the demand within the TPOT target, for this very micro-batch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.candidates import candidate_sizes
from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import StepCoefficients
from pipelineserve.policy.views import LoadView, PromptLoad
from policy_views import NO_PROMPTS, line_model, make_load_view, make_model, prompts_of

# Steps of 10 ms plus 0.1 ms per token: 50 ms at 400 tokens, which four slots make 200 ms.
POLICY = Predictive(line_model(), candidate_sizes(100, 1000, 100), tpot_target_s=0.2)
A_QUEUE = prompts_of(*[1000] * 10)


def test_takes_the_smallest_chunk_that_serves_the_backlog_within_the_horizon() -> None:
    # 1,600 tokens in 0.4 s are 4,000 per second; 100 tokens in 20 ms are 5,000 per second.
    decision = POLICY.decide(make_load_view(waiting=prompts_of(1600)))
    assert decision == ChunkDecision(100, Reason.DEMAND_MET)


def test_takes_a_larger_chunk_when_the_smaller_one_is_too_slow_for_the_demand() -> None:
    # 2,600 tokens are 6,500 per second: 100 in 20 ms give 5,000, 200 in 30 ms give 6,667.
    decision = POLICY.decide(make_load_view(waiting=prompts_of(2600)))
    assert decision == ChunkDecision(200, Reason.DEMAND_MET)


def test_decodes_take_room_that_prompts_then_lack() -> None:
    # Of 300 tokens 60 are decodes: 240 in 40 ms are 6,000 per second, too few.
    decision = POLICY.decide(make_load_view(decodes=60, waiting=prompts_of(2600)))
    assert decision == ChunkDecision(400, Reason.DEMAND_MET)


def test_arrivals_are_a_demand_though_the_queue_is_short() -> None:
    view = make_load_view(waiting=prompts_of(900), arrived_tokens=65_000, arrival_window_s=10.0)
    assert POLICY.decide(view) == ChunkDecision(200, Reason.DEMAND_MET)


def test_a_burst_is_seen_at_the_next_micro_batch() -> None:
    calm = POLICY.decide(make_load_view(waiting=prompts_of(500)))
    burst = POLICY.decide(make_load_view(waiting=A_QUEUE))
    assert (calm.chunk_tokens, burst.chunk_tokens) == (100, 400)


def test_a_demand_beyond_the_target_gets_the_largest_safe_chunk() -> None:
    decision = POLICY.decide(make_load_view(waiting=A_QUEUE))
    assert decision == ChunkDecision(400, Reason.LARGEST_SAFE_CHUNK)


def test_more_slots_make_the_same_step_unsafe() -> None:
    view = make_load_view(num_slots=5, waiting=A_QUEUE)
    assert POLICY.decide(view) == ChunkDecision(300, Reason.LARGEST_SAFE_CHUNK)


def test_without_a_tpot_target_the_demand_alone_bounds_the_chunk() -> None:
    free = replace(POLICY, tpot_target_s=None)
    assert free.decide(make_load_view(waiting=A_QUEUE)).chunk_tokens == 1000
    assert free.decide(make_load_view(waiting=prompts_of(1600))).chunk_tokens == 100


def test_with_no_safe_chunk_prompts_still_get_the_smallest() -> None:
    strict = replace(POLICY, tpot_target_s=0.05)
    decision = strict.decide(make_load_view(decodes=95, waiting=A_QUEUE))
    assert decision == ChunkDecision(200, Reason.NO_CHUNK_IS_SAFE)


def test_a_chunk_that_takes_the_whole_queue_is_not_made_larger() -> None:
    view = make_load_view(waiting=prompts_of(150), arrived_tokens=10**6)
    assert POLICY.decide(view) == ChunkDecision(200, Reason.BACKLOG_FITS)


def test_the_tokens_there_are_count_and_not_the_size_of_the_chunk() -> None:
    # 410 tokens would be unsafe in a chunk of 500, were it full; 399 in it are not.
    policy = replace(POLICY, candidates=(100, 500))
    view = make_load_view(waiting=prompts_of(399), arrived_tokens=10**6)
    assert policy.decide(view) == ChunkDecision(500, Reason.BACKLOG_FITS)
    view = make_load_view(waiting=prompts_of(410), arrived_tokens=10**6)
    assert policy.decide(view) == ChunkDecision(100, Reason.LARGEST_SAFE_CHUNK)


def test_without_prompts_the_chunk_holds_the_decodes() -> None:
    decision = POLICY.decide(make_load_view(decodes=120))
    assert decision == ChunkDecision(200, Reason.NO_PROMPT_WAITS)


def test_decodes_beyond_the_largest_candidate_all_go_and_prompts_get_their_minimum() -> None:
    decision = POLICY.decide(make_load_view(decodes=1200, waiting=A_QUEUE))
    assert decision == ChunkDecision(1208, Reason.DECODES_FILL_CHUNK)


def test_the_ceiling_of_buffers_is_never_exceeded() -> None:
    view = make_load_view(decodes=1200, waiting=A_QUEUE, max_chunk_tokens=1100)
    assert POLICY.decide(view) == ChunkDecision(1100, Reason.DECODES_FILL_CHUNK)
    view = make_load_view(waiting=A_QUEUE, max_chunk_tokens=250)
    assert POLICY.decide(view) == ChunkDecision(200, Reason.LARGEST_SAFE_CHUNK)


def test_a_ceiling_below_every_candidate_is_the_chunk() -> None:
    view = make_load_view(decodes=10, waiting=A_QUEUE, max_chunk_tokens=64)
    assert POLICY.decide(view) == ChunkDecision(64, Reason.CHUNK_CEILING)


@pytest.mark.parametrize("candidates", [(), (0, 5), (5, 5), (9, 5)])
def test_candidates_that_do_not_ascend_are_refused(candidates: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="candidates: expected ascending"):
        replace(POLICY, candidates=candidates)


@pytest.mark.parametrize("name", ["horizon_s", "arrival_window_s"])
def test_durations_of_nothing_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected above 0"):
        replace(POLICY, **{name: 0.0})  # type: ignore[arg-type]


def test_kv_pressure_gives_prompts_as_little_as_possible() -> None:
    view = make_load_view(decodes=95, waiting=A_QUEUE, kv_free_ratio=0.09)
    assert POLICY.decide(view) == ChunkDecision(200, Reason.KV_PRESSURE)
    assert POLICY.decide(replace(view, kv_free_ratio=0.1)).reason is Reason.LARGEST_SAFE_CHUNK


def test_the_spread_of_the_prediction_is_a_margin() -> None:
    unsure = replace(POLICY, model=replace(POLICY.model, spread_ratio=0.3), num_spreads=1.0)
    view = make_load_view(waiting=A_QUEUE)
    assert unsure.decide(view).chunk_tokens == 200  # 40 ms · 1.3 are 52 ms
    assert replace(unsure, num_spreads=0.0).decide(view).chunk_tokens == 400


def test_feedback_of_slow_steps_makes_the_chunk_smaller() -> None:
    slow = replace(POLICY, model=replace(POLICY.model, feedback_ratio=1.3))
    assert slow.decide(make_load_view(waiting=A_QUEUE)).chunk_tokens == 200


def test_overheads_count_against_the_target_and_the_throughput() -> None:
    view = make_load_view(waiting=A_QUEUE)
    assert replace(POLICY, cycle_overhead_s=0.04).decide(view).chunk_tokens == 300
    # 100 tokens in 20 ms and 10 ms more are 3,333 per second.
    view = make_load_view(waiting=prompts_of(1600))
    assert replace(POLICY, step_overhead_s=0.01).decide(view).chunk_tokens == 200


def test_long_contexts_of_decodes_leave_less_for_prompts() -> None:
    model = line_model()
    model = replace(model, coefficients=StepCoefficients(decode_context_s=1e-6))
    policy = replace(POLICY, model=model)
    short = make_load_view(decodes=10, context_tokens=0, waiting=A_QUEUE)
    long = make_load_view(decodes=10, context_tokens=20_000, waiting=A_QUEUE)
    assert (policy.decide(short).chunk_tokens, policy.decide(long).chunk_tokens) == (400, 200)


def test_a_long_past_of_the_started_prompt_makes_its_piece_smaller() -> None:
    model = replace(line_model(), coefficients=StepCoefficients(past_prefill_s=1e-8))
    policy = replace(POLICY, model=model)
    view = make_load_view(started=prompts_of(5000, past_tokens=10_000))
    assert policy.decide(view).chunk_tokens == 200


def test_what_is_promised_to_prompts_is_what_the_best_safe_chunk_serves() -> None:
    # 400 tokens of which 40 are decodes take 50 ms, the limit; nothing waits at the moment.
    assert POLICY.promised_tokens_per_s(make_load_view(decodes=40)) == pytest.approx(0.95 * 7200)


def test_contexts_of_decodes_lower_what_is_promised() -> None:
    model = replace(POLICY.model, coefficients=StepCoefficients(decode_context_s=1e-6))
    view = make_load_view(decodes=40, context_tokens=10_000)
    promised = replace(POLICY, model=model).promised_tokens_per_s(view)
    assert promised == pytest.approx(0.95 * 260 / 0.05)  # 300 tokens in 40 ms and 10 ms


def test_the_promise_is_above_zero_though_decodes_fill_every_chunk() -> None:
    promised = POLICY.promised_tokens_per_s(make_load_view(decodes=5000))
    assert promised == pytest.approx(0.95 * 8 / 0.11)


def by_the_definition(policy: Predictive, view: LoadView) -> int:
    """The law written out candidate by candidate, with no shortcut."""
    least = view.assigned.num + min(policy.least_prefill_tokens, view.prefill_tokens)
    sizes = [c for c in policy.candidates if least <= c <= view.max_chunk_tokens]
    if least > policy.candidates[-1]:
        return min(least, view.max_chunk_tokens)
    if not sizes:
        return view.max_chunk_tokens
    if view.prefill_tokens == 0 or view.kv_free_ratio < policy.least_kv_free_ratio:
        return sizes[0]
    safe = []
    for size in sizes:
        prefill = min(size - view.assigned.num, view.prefill_tokens)
        time_s = policy._pricing(view)(policy.candidates.index(size))
        if time_s > policy.step_limit_s(view.num_slots):
            break
        safe.append(size)
        rate = prefill / (time_s + policy.step_overhead_s)
        if rate >= policy.required_tokens_per_s(view) or prefill == view.prefill_tokens:
            return size
    return safe[-1] if safe else sizes[0]


views = st.builds(
    make_load_view,
    num_slots=st.integers(1, 8),
    max_chunk_tokens=st.integers(1, 3000),
    decodes=st.integers(0, 400),
    started=st.just(NO_PROMPTS)
    | st.builds(
        lambda rest, past: prompts_of(rest, past_tokens=past),
        st.integers(1, 8000),
        st.integers(0, 8000),
    ),
    waiting=st.lists(st.integers(1, 5000), max_size=12).map(lambda lengths: prompts_of(*lengths)),
    kv_free_ratio=st.floats(0, 1),
    arrived_tokens=st.integers(0, 200_000),
)
policies = st.builds(
    Predictive,
    model=st.sampled_from([make_model(), line_model(), make_model(spread_ratio=0.1)]),
    candidates=st.builds(
        candidate_sizes, st.integers(1, 200), st.integers(200, 2048), st.integers(7, 300)
    ),
    tpot_target_s=st.none() | st.floats(0.01, 1.0),
    horizon_s=st.floats(0.05, 5.0),
    step_overhead_s=st.sampled_from([0.0, 0.002]),
)


@given(policy=policies, view=views)
def test_shortcuts_give_what_the_definition_gives(policy: Predictive, view: LoadView) -> None:
    assert policy.decide(view).chunk_tokens == by_the_definition(policy, view)


@given(policy=policies, view=views)
def test_neither_decodes_nor_prompts_starve_but_for_the_ceiling(
    policy: Predictive, view: LoadView
) -> None:
    chunk_tokens = policy.decide(view).chunk_tokens
    assert 1 <= chunk_tokens <= view.max_chunk_tokens
    least = view.assigned.num + min(policy.least_prefill_tokens, view.prefill_tokens)
    assert chunk_tokens >= min(least, view.max_chunk_tokens)


@given(view=views)
def test_a_micro_batch_that_is_called_safe_is_predicted_to_meet_the_target(
    view: LoadView,
) -> None:
    policy = Predictive(make_model(), candidate_sizes(128, 2048, 128), tpot_target_s=0.2)
    decision = policy.decide(view)
    if decision.reason in {Reason.DEMAND_MET, Reason.BACKLOG_FITS, Reason.LARGEST_SAFE_CHUNK}:
        index = policy.candidates.index(decision.chunk_tokens)
        assert view.num_slots * policy._pricing(view)(index) <= 0.2 + 1e-12


@pytest.mark.parametrize("prompts", [prompts_of(300), prompts_of(40, 50, 60)])
def test_the_price_is_the_models_prediction(prompts: PromptLoad) -> None:
    policy = Predictive(make_model(feedback_ratio=1.2), candidate_sizes(64, 512, 64), 0.2)
    view = make_load_view(decodes=10, context_tokens=5000, waiting=prompts)
    index = 1
    prefill = min(policy.candidates[index] - 10, prompts.tokens)
    squares = prefill * min(prefill, prompts.squared_tokens / prompts.tokens)
    expected = 1.2 * (
        policy.model.table.at(10 + prefill)
        + policy.model.coefficients.decode_context_s * 5000
        + policy.model.coefficients.squared_prefill_s * squares
    )
    assert policy._pricing(view)(index) == pytest.approx(expected)
