"""Tokens are drawn from the distribution that the parameters leave, by the request's seed alone."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from inline_engine import an_inline_engine
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.generation import GenerationRequest, SamplingParameters
from pipelineserve_engine.request_sampling import RequestSampling
from pipelineserve_engine.sampling import adjust, candidates, sample, uniform
from pipelineserve_engine.stage_messages import SamplingSpec
from tiny_models import TinyModel


def a_spec(
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 1,
    index: int = 0,
    min_p: float = 0.0,
) -> SamplingSpec:
    return SamplingSpec(temperature, top_k, top_p, seed, index, min_p)


def a_spec_of(
    parameters: SamplingParameters,
    prompt: tuple[int, ...] = (0,),
    output: tuple[int, ...] = (),
    num_top_logprobs: int | None = None,
) -> SamplingSpec:
    """What the stages get for the token after these."""
    request = GenerationRequest("r", prompt, 99, parameters, num_top_logprobs=num_top_logprobs)
    sampling = RequestSampling(request, lambda: 7)
    for token_id in output:
        sampling.append(token_id)
    spec = sampling.spec(len(output))
    assert spec is not None
    return spec


def draw_many(logits: torch.Tensor, num_draws: int, **fields: float) -> list[int]:
    specs = [a_spec(index=index, **fields) for index in range(num_draws)]  # type: ignore[arg-type]
    return list(sample(logits.expand(num_draws, -1), specs).token_ids)


def frequencies(tokens: list[int], size: int) -> torch.Tensor:
    return torch.bincount(torch.tensor(tokens), minlength=size) / len(tokens)


def test_no_spec_takes_the_likeliest_token() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 3.0, 1.0]])
    assert sample(logits, [None, None]).token_ids == (1, 0)
    assert sample(logits, [None, None]).extras is None


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_distribution_at_the_temperature(temperature: float) -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    seen = frequencies(draw_many(logits, 4000, temperature=temperature), 4)
    assert torch.allclose(seen, torch.softmax(logits / temperature, -1), atol=0.03)


def test_top_k_leaves_the_k_likeliest_in_proportion() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    seen = frequencies(draw_many(logits, 4000, top_k=2), 4)
    kept = torch.softmax(torch.tensor([1.0, 2.0]), -1)
    assert torch.allclose(seen, torch.tensor([0.0, kept[0], kept[1], 0.0]), atol=0.03)


def test_top_p_leaves_the_fewest_likeliest_that_reach_it() -> None:
    logits = torch.log(torch.tensor([0.1, 0.5, 0.3, 0.1]))
    seen = frequencies(draw_many(logits, 4000, top_p=0.7), 4)
    assert torch.allclose(seen, torch.tensor([0.0, 0.625, 0.375, 0.0]), atol=0.03)


def test_top_p_holds_within_what_top_k_left() -> None:
    logits = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1]))
    # Of the two kept, the first alone has 4/7 of the probability.
    assert set(draw_many(logits, 500, top_k=2, top_p=0.55)) == {0}
    assert set(draw_many(logits, 500, top_k=2, top_p=0.6)) == {0, 1}


def test_top_p_of_a_flat_distribution_over_a_large_vocabulary_keeps_its_share() -> None:
    tokens = draw_many(torch.zeros(5000), 3000, top_p=0.5)
    assert len(set(tokens)) > 1024  # more than the likeliest that are looked at first
    assert len(set(tokens)) <= 2501


@given(
    # Numbers below the smallest normal one count as 0 in some kernels, and not in others.
    logits=st.lists(st.floats(-50, 50, width=32, allow_subnormal=False), min_size=1, max_size=40),
    temperature=st.floats(0.01, 10.0),
    top_k=st.integers(0, 50),
    top_p=st.floats(0.01, 1.0),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_draw_is_always_among_what_is_left(
    logits: list[float], temperature: float, top_k: int, top_p: float, seed: int
) -> None:
    row = torch.tensor(logits)
    spec = a_spec(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    (token,) = sample(row[None], [spec]).token_ids
    num_likelier = int((row > row[token]).sum())
    assert 0 <= token < len(logits)
    assert num_likelier < (top_k or len(logits))
    mass_before = torch.softmax(row / temperature, -1)[row > row[token]].sum()
    assert top_k or float(mass_before) <= top_p + 1e-5


def test_the_uniform_number_depends_on_seed_and_index_and_stays_below_one() -> None:
    numbers = {uniform(seed, index) for seed in range(30) for index in range(30)}
    assert len(numbers) == 900
    assert all(0.0 <= number < 1.0 for number in numbers)


@pytest.mark.parametrize("seed", [3, None], ids=["own seed", "drawn seed"])
def test_a_sampled_request_gives_the_same_tokens_alone_in_company_and_through_preemption(
    llama: TinyModel, seed: int | None
) -> None:
    sampling = SamplingParameters(temperature=1.5, top_p=0.95, seed=seed)
    prompt = list(range(30))
    alone = an_inline_engine(llama.folder, (2, 3), chunk_tokens=16)
    alone.submit("r", prompt, 20, sampling)
    crowded = an_inline_engine(
        llama.folder, (3, 2), chunk_tokens=9, num_blocks=9, max_context_tokens=60
    )
    for index in range(4):
        crowded.submit(f"other{index}", range(index, index + 25), 20)
    crowded.submit("r", prompt, 20, sampling)
    assert crowded.run()["r"] == alone.run()["r"]
    assert crowded.core.scheduler.tally.preemptions > 0
    assert len(set(alone.outputs["r"])) > 5


# The reference: transformers' own processors on the same logits

VOCABULARY = 500


def random_logits(seed: int) -> torch.Tensor:
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 4.0


def kept_by(processors: list[Callable[..., torch.Tensor]], logits: torch.Tensor) -> set[int]:
    scores = LogitsProcessorList(processors)(torch.zeros(1, 1, dtype=torch.int64), logits[None])[0]
    return set(scores.isfinite().nonzero().squeeze(-1).tolist())


def kept_here(logits: torch.Tensor, spec: SamplingSpec) -> set[int]:
    _, token_ids = candidates(logits, spec)
    return set(range(VOCABULARY)) if token_ids is None else set(token_ids.tolist())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("fields", "processors"),
    [
        ({"top_k": 1}, [TopKLogitsWarper(1)]),
        ({"top_k": 40}, [TopKLogitsWarper(40)]),
        ({"top_p": 0.3}, [TopPLogitsWarper(0.3)]),
        ({"top_p": 0.95}, [TopPLogitsWarper(0.95)]),
        ({"min_p": 0.05}, [MinPLogitsWarper(0.05)]),
        ({"min_p": 1.0}, [MinPLogitsWarper(1.0)]),
        ({"temperature": 3.0, "min_p": 0.2}, [TemperatureLogitsWarper(3.0), MinPLogitsWarper(0.2)]),
        (
            {"temperature": 2.5, "top_k": 60, "top_p": 0.8, "min_p": 0.1},
            [
                TemperatureLogitsWarper(2.5),
                TopKLogitsWarper(60),
                TopPLogitsWarper(0.8),
                MinPLogitsWarper(0.1),
            ],
        ),
    ],
    ids=["k=1", "k=40", "p=0.3", "p=0.95", "min=0.05", "min=1", "min after heat", "all of them"],
)
def test_the_tokens_left_are_those_that_transformers_leaves(
    fields: dict[str, float], processors: list[Callable[..., torch.Tensor]], seed: int
) -> None:
    logits = random_logits(seed)
    expected = kept_by(processors, logits)
    assert kept_here(logits, a_spec(**fields)) == expected  # type: ignore[arg-type]
    assert len(expected) < VOCABULARY


@pytest.mark.parametrize("temperature", [0.3, 1.7])
def test_the_weights_are_transformers_probabilities(temperature: float) -> None:
    logits = random_logits(9)
    warped = TemperatureLogitsWarper(temperature)(torch.zeros(1, 1), logits[None])[0]
    weights, _ = candidates(logits, a_spec(temperature=temperature))
    assert torch.equal(weights, torch.softmax(warped, -1))


@pytest.mark.parametrize("penalty", [0.5, 1.2, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_repetition_penalty_gives_transformers_logits(penalty: float, seed: int) -> None:
    logits = random_logits(seed)
    prompt, output = (3, 9, 9, 400), (9, 7, 499, 7)
    spec = a_spec_of(SamplingParameters(0.0, repetition_penalty=penalty), prompt, output)
    assert spec.adjustments is not None
    history = torch.tensor([[*prompt, *output]])
    expected = RepetitionPenaltyLogitsProcessor(penalty)(history, logits[None].clone())[0]
    assert torch.equal(adjust(logits, spec.adjustments), expected)


# Penalties over the output, and the bias

TOKENS = st.lists(st.integers(0, 19), max_size=30)
PENALTIES = st.floats(-2.0, 2.0, width=32)


@given(TOKENS, TOKENS, PENALTIES, PENALTIES, st.integers(0, 99))
def test_frequency_and_presence_count_the_output_and_never_the_prompt(
    prompt: list[int], output: list[int], frequency: float, presence: float, seed: int
) -> None:
    logits = torch.randn(20, generator=torch.Generator().manual_seed(seed))
    parameters = SamplingParameters(0.5, frequency_penalty=frequency, presence_penalty=presence)
    spec = a_spec_of(parameters, (0, *prompt), tuple(output))
    counts = Counter(output)
    expected = torch.tensor(
        [
            float(logit) - counts[token_id] * frequency - (counts[token_id] > 0) * presence
            for token_id, logit in enumerate(logits)
        ]
    )
    is_off = frequency == 0.0 and presence == 0.0
    assert (spec.adjustments is None) == is_off
    adjusted = logits if spec.adjustments is None else adjust(logits, spec.adjustments)
    assert torch.allclose(adjusted, expected, atol=1e-5)


def test_a_bias_comes_after_the_penalties_so_it_can_force_and_ban() -> None:
    logits = torch.tensor([9.0, 8.0, 7.0, -20.0])
    forced = SamplingParameters(0.0, repetition_penalty=2.0, logit_bias=((3, 100.0),))
    assert sample(logits[None], [a_spec_of(forced, (3,))]).token_ids == (3,)
    banned = SamplingParameters(1.0, logit_bias=((0, -100.0), (1, -100.0), (3, -100.0)))
    specs = [a_spec_of(banned, output=(1,) * index) for index in range(50)]
    assert set(sample(logits.expand(50, -1), specs).token_ids) == {2}


def test_penalties_change_the_greedy_choice() -> None:
    logits = torch.tensor([[3.0, 2.9, 2.0]])
    parameters = SamplingParameters(0.0, frequency_penalty=0.5)
    assert sample(logits, [a_spec_of(parameters)]).token_ids == (0,)
    assert sample(logits, [a_spec_of(parameters, output=(0,))]).token_ids == (1,)
    assert sample(logits, [a_spec_of(parameters, output=(0, 1, 0, 1))]).token_ids == (0,)


def test_the_logits_that_were_given_stay_as_they_were() -> None:
    logits = torch.tensor([[3.0, 2.9, 2.0]])
    sample(logits, [a_spec_of(SamplingParameters(0.0, logit_bias=((2, 5.0),)))])
    assert logits.tolist() == torch.tensor([[3.0, 2.9, 2.0]]).tolist()


# Log-probabilities


def test_logprobs_are_the_models_own_whatever_the_parameters() -> None:
    logits = random_logits(1)
    reference = torch.log_softmax(logits, -1)
    parameters = SamplingParameters(3.0, top_k=9, frequency_penalty=2.0, logit_bias=((4, 50.0),))
    plain = a_spec_of(SamplingParameters(0.0), num_top_logprobs=3)
    samples = sample(
        logits.expand(3, -1),
        [None, plain, a_spec_of(parameters, output=(4,), num_top_logprobs=0)],
    )
    assert samples.extras is not None
    assert samples.extras.failures == ()
    none, greedy, drawn = samples.extras.logprobs
    assert none is None
    assert greedy is not None
    best = reference.topk(3)
    assert greedy.top_token_ids == tuple(best.indices.tolist())
    assert greedy.top == pytest.approx(best.values.tolist(), abs=1e-6)
    assert greedy.chosen == greedy.top[0]
    assert drawn is not None
    assert drawn.chosen == pytest.approx(float(reference[4]), abs=1e-6)
    assert drawn.top == drawn.top_token_ids == ()


def test_the_logprobs_of_a_request_equal_those_of_transformers(llama: TinyModel) -> None:
    prompt = list(range(40, 70))
    engine = an_inline_engine(llama.folder, (2, 3), chunk_tokens=16)
    engine.submit("plain", prompt, 12)
    engine.submit("scored", prompt[::-1], 12, SamplingParameters(1.2, seed=5), num_top_logprobs=4)
    outputs = engine.run()
    whole = torch.tensor([prompt[::-1] + outputs["scored"]])
    with torch.no_grad():
        reference = torch.log_softmax(llama.reference(whole).logits[0], -1)[len(prompt) - 1 : -1]
    assert set(engine.logprobs) == {"scored"}
    assert len(engine.logprobs["scored"]) == 12
    for token_id, entry, row in zip(
        outputs["scored"], engine.logprobs["scored"], reference, strict=True
    ):
        assert entry.chosen == pytest.approx(float(row[token_id]), abs=1e-4)
        assert entry.top == pytest.approx(row.topk(4).values.tolist(), abs=1e-4)


# What goes wrong in one row stays there


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_fail_their_request_alone(value: float) -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [0.0, value, 1.0], [5.0, 3.0, 1.0]])
    samples = sample(logits, [a_spec(temperature=0.001), a_spec(), None])
    assert (samples.token_ids[0], samples.token_ids[2]) == (1, 0)
    assert samples.extras is not None
    (failure,) = samples.extras.failures
    assert failure.sample_index == 1
    assert failure.reason == "the model's logits are not finite numbers"


def test_a_greedy_request_fails_too_when_no_token_is_possible() -> None:
    samples = sample(torch.full((1, 3), -torch.inf), [None])
    assert samples.extras is not None
    assert [failure.sample_index for failure in samples.extras.failures] == [0]


def test_a_mistake_while_sampling_fails_its_request_alone_and_quotes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outside = SamplingParameters(1.0, logit_bias=((77, 1.0),))
    samples = sample(torch.tensor([[1.0, 3.0], [4.0, 3.0]]), [a_spec_of(outside), None])
    assert samples.token_ids[1] == 0
    assert samples.extras is not None
    (failure,) = samples.extras.failures
    assert (failure.sample_index, "IndexError" in failure.reason) == (0, True)
    assert "IndexError" in caplog.text
    assert "77" not in failure.reason + caplog.text


# Whole requests

PENALISED = SamplingParameters(
    temperature=1.3,
    top_p=0.98,
    min_p=0.001,
    seed=3,
    repetition_penalty=1.2,
    frequency_penalty=0.6,
    presence_penalty=0.4,
    logit_bias=((5, 2.0), (6, -100.0)),
)


@pytest.mark.parametrize(
    "sampling",
    [PENALISED, SamplingParameters(0.0, repetition_penalty=1.3, frequency_penalty=1.0)],
    ids=["drawn", "greedy"],
)
def test_a_penalised_request_gives_the_same_tokens_alone_and_through_preemption(
    llama: TinyModel, sampling: SamplingParameters
) -> None:
    prompt = list(range(30))
    alone = an_inline_engine(llama.folder, (2, 3), chunk_tokens=16)
    alone.submit("r", prompt, 20, sampling, num_top_logprobs=2)
    crowded = an_inline_engine(
        llama.folder, (3, 2), chunk_tokens=9, num_blocks=9, max_context_tokens=60
    )
    for index in range(4):
        crowded.submit(f"other{index}", range(index, index + 25), 20)
    crowded.submit("r", prompt, 20, sampling, num_top_logprobs=2)
    assert crowded.run()["r"] == alone.run()["r"]
    assert crowded.core.scheduler.tally.preemptions > 0
    assert len(crowded.logprobs["r"]) == 20
    plain = an_inline_engine(llama.folder, (2, 3), chunk_tokens=16)
    plain.submit("r", prompt, 20, SamplingParameters(sampling.temperature, seed=3))
    assert plain.run()["r"] != alone.outputs["r"]


@pytest.mark.parametrize("recall_after_steps", [1, 4, 9])
def test_a_penalised_request_gives_the_same_tokens_through_a_recovery(
    llama: TinyModel, recall_after_steps: int
) -> None:
    alone = an_inline_engine(llama.folder, (2, 3), chunk_tokens=16)
    recovered = an_inline_engine(llama.folder, (2, 3), chunk_tokens=16)
    for engine in (alone, recovered):
        engine.submit("r", range(30), 20, PENALISED)
    for _ in range(recall_after_steps):
        recovered.step()
    recovered.core.fill_slots(recovered.now_s)
    recovered.executor.restart()
    assert recovered.core.recall_all() == 1
    assert recovered.run() == alone.run()


def test_a_greedy_repetition_penalty_gives_what_transformers_generates(llama: TinyModel) -> None:
    prompt = list(range(30))
    expected = llama.reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
        max_new_tokens=20,
        do_sample=False,
        repetition_penalty=4.0,
        pad_token_id=0,
        eos_token_id=None,
    )[0, len(prompt) :].tolist()
    engine = an_inline_engine(llama.folder, (2, 2, 1), chunk_tokens=7)
    engine.submit("r", prompt, 20, SamplingParameters(0.0, repetition_penalty=4.0))
    assert engine.run()["r"] == expected
    assert expected != llama.greedy(prompt, 20)


def test_a_request_whose_logits_break_ends_with_an_error_and_the_others_go_on(
    llama: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = an_inline_engine(llama.folder, (5,), chunk_tokens=64)
    engine.submit("well", range(20), 8)
    engine.submit("ill", range(50, 70), 8)
    engine.step()
    assert engine.finishes == {}
    last = engine.executor._stages[-1]._model
    logits = last.logits

    def break_second_row(hidden: torch.Tensor) -> torch.Tensor:
        rows = logits(hidden)
        rows[1] = torch.nan
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(last, "logits", break_second_row)
        engine.step()
    assert engine.finishes == {"ill": FinishReason.ERROR}
    assert engine.run()["well"] == llama.greedy(list(range(20)), 8)
    assert engine.core.scheduler.kv_used_ratio == 0.0
    assert engine.core.scheduler.census().failed == 1
