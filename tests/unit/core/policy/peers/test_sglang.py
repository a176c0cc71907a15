"""SGLang's dynamic chunking, branch by branch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.peers.sglang import (
    PromptTime,
    SglangDynamic,
    fit_prompt_time,
    sampled_lengths,
)
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import PromptLoad
from policy_views import make_load_view, prompts_of

# Attention costs as much as all else at 1,000 tokens.
CURVE = PromptTime(squared_s=1e-7, linear_s=1e-4)
POLICY = SglangDynamic(512, CURVE, max_context_tokens=100_000)
EXACT = replace(POLICY, smooth_ratio=1.0)


def after(history_tokens: int) -> PromptLoad:
    """A prompt that goes on after so many tokens."""
    return prompts_of(10_000, past_tokens=history_tokens)


def test_the_first_piece_and_packed_prompts_get_the_static_chunk() -> None:
    view = make_load_view(decodes=9, waiting=prompts_of(3000, 100))
    assert POLICY.decide(view) == ChunkDecision(512, Reason.STATIC_CHUNK)


def test_a_continuing_piece_takes_as_long_as_the_first_one() -> None:
    # f(512) = 0.0774 s, which after 1,000 tokens 239 take, and after 300 tokens 389.
    assert EXACT.decide(make_load_view(started=after(1000))).chunk_tokens == 192
    assert EXACT.decide(make_load_view(started=after(300))).chunk_tokens == 384


def test_it_follows_three_quarters_of_the_way() -> None:
    # 239 after 1,000 tokens; 512 - 0.75 · 273 = 307.
    decision = POLICY.decide(make_load_view(started=after(1000)))
    assert decision == ChunkDecision(256, Reason.EQUAL_PIECE_TIME)


def test_it_never_falls_below_a_quarter_of_the_chunk() -> None:
    assert EXACT.decide(make_load_view(started=after(50_000))).chunk_tokens == 128


def test_pages_larger_than_64_are_the_unit() -> None:
    paged = replace(POLICY, page_tokens=200)
    assert paged.decide(make_load_view(started=after(1000))).chunk_tokens == 200


def test_near_the_end_of_the_context_a_margin_of_100_tokens_stays() -> None:
    near = replace(POLICY, max_context_tokens=1000 + 100 + 130)
    assert near.decide(make_load_view(started=after(1000))).chunk_tokens == 128
    too_near = replace(POLICY, max_context_tokens=1000 + 100 + 63)
    view = make_load_view(started=after(1000))
    assert too_near.decide(view) == ChunkDecision(512, Reason.STATIC_CHUNK)


def test_a_curve_that_does_not_rise_turns_the_rule_off() -> None:
    for curve in (PromptTime(0.0, 1e-4), PromptTime(-1e-9, 1e-4), PromptTime(1e-9, -1e-3)):
        flat = replace(POLICY, prompt_time=curve)
        decision = flat.decide(make_load_view(started=after(1000)))
        assert decision == ChunkDecision(512, Reason.STATIC_CHUNK)


def test_the_ceiling_bounds_both() -> None:
    assert POLICY.decide(make_load_view(max_chunk_tokens=100)).chunk_tokens == 100
    view = make_load_view(started=after(1000), max_chunk_tokens=140)
    assert POLICY.decide(view).chunk_tokens == 128


@given(st.floats(1e-9, 1e-6), st.floats(1e-6, 1e-3), st.floats(0, 0.1), st.integers(64, 4096))
def test_the_fit_finds_a_quadratic(
    squared_s: float, linear_s: float, constant_s: float, chunk_tokens: int
) -> None:
    lengths = sampled_lengths(chunk_tokens)
    times_s = [squared_s * n * n + linear_s * n + constant_s for n in lengths]
    fitted = fit_prompt_time(lengths, times_s)
    reached_s = squared_s * lengths[-1] ** 2 + linear_s * lengths[-1]
    assert fitted.squared_s * lengths[-1] ** 2 + fitted.linear_s * lengths[-1] == pytest.approx(
        reached_s, rel=1e-3
    )


def test_lengths_reach_a_quarter_beyond_the_chunk() -> None:
    lengths = sampled_lengths(512)
    assert (len(lengths), lengths[0], lengths[-1]) == (128, 5, 640)


def test_two_lengths_are_too_few() -> None:
    with pytest.raises(ValueError, match="at least three lengths"):
        fit_prompt_time([5, 6, 6], [1.0, 2.0, 2.0])
