"""What travels with each token: only what was asked for, and the history that penalties see."""

from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_engine.generation import GREEDY, GenerationRequest, SamplingParameters
from pipelineserve_engine.request_sampling import RequestSampling
from pipelineserve_engine.stage_messages import SamplingSpec

TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=40)


def forbidden() -> int:
    raise AssertionError("no seed is needed")


def a_sampling(
    parameters: SamplingParameters,
    prompt: tuple[int, ...] = (1, 2),
    num_top_logprobs: int | None = None,
    draw_seed: Callable[[], int] = forbidden,
) -> RequestSampling:
    request = GenerationRequest("r", prompt, 9, parameters, num_top_logprobs=num_top_logprobs)
    return RequestSampling(request, draw_seed)


def ids(buffer: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(buffer, "<i4").tolist()
    return numbers


def test_a_plain_greedy_request_sends_nothing() -> None:
    assert a_sampling(GREEDY).spec(0) is None
    assert a_sampling(SamplingParameters(0.0, top_k=5, top_p=0.5, min_p=0.1)).spec(0) is None


def test_greedy_with_logprobs_sends_a_spec_that_draws_nothing() -> None:
    spec = a_sampling(GREEDY, num_top_logprobs=0).spec(4)
    assert spec == SamplingSpec(0.0, 0, 1.0, 0, 4, num_top_logprobs=0)


def test_a_seed_is_drawn_once_and_only_for_requests_without_one() -> None:
    seeds = iter([100])
    drawn = a_sampling(SamplingParameters(0.5), draw_seed=lambda: next(seeds))
    assert [spec.seed for index in range(3) if (spec := drawn.spec(index))] == [100] * 3
    given = a_sampling(SamplingParameters(0.5, seed=0)).spec(0)
    assert given is not None
    assert given.seed == 0


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40), TOKENS)
def test_the_history_is_the_prompts_set_and_the_outputs_counts(
    prompt: list[int], output: list[int]
) -> None:
    parameters = SamplingParameters(0.0, repetition_penalty=1.1, presence_penalty=0.1)
    sampling = a_sampling(parameters, tuple(prompt))
    for token_id in output:
        sampling.append(token_id)
    spec = sampling.spec(len(output))
    assert spec is not None
    assert spec.adjustments is not None
    seen = ids(spec.adjustments.seen_token_ids)
    assert sorted(seen) == sorted({*prompt, *output})
    counts = dict(
        zip(
            ids(spec.adjustments.output_token_ids),
            ids(spec.adjustments.output_counts),
            strict=True,
        )
    )
    assert counts == Counter(output)


@pytest.mark.parametrize(
    ("parameters", "has_seen", "has_output"),
    [
        (SamplingParameters(0.0, repetition_penalty=1.1), True, False),
        (SamplingParameters(0.0, frequency_penalty=1.0), False, True),
        (SamplingParameters(0.0, logit_bias=((3, 1.0),)), False, False),
    ],
    ids=["repetition", "frequency", "bias"],
)
def test_only_the_history_that_a_penalty_looks_at_travels(
    parameters: SamplingParameters, has_seen: bool, has_output: bool
) -> None:
    sampling = a_sampling(parameters)
    sampling.append(8)
    spec = sampling.spec(1)
    assert spec is not None
    assert spec.adjustments is not None
    assert bool(spec.adjustments.seen_token_ids) == has_seen
    assert bool(spec.adjustments.output_token_ids) == has_output


def test_a_spec_survives_the_way_to_the_stages() -> None:
    parameters = SamplingParameters(
        0.7, 5, 0.9, -(2**63), 0.1, 1.2, 0.3, -0.3, ((7, 1.5), (2**31 - 1, -100.0))
    )
    sampling = a_sampling(parameters, num_top_logprobs=3)
    sampling.append(9)
    spec = sampling.spec(1)
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(spec), type=SamplingSpec)
    assert decoded == spec
