"""Tokens are drawn from the distribution that the parameters leave, by the request's seed alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inline_engine import an_inline_engine
from pipelineserve_engine.generation import SamplingParameters
from pipelineserve_engine.sampling import sample, uniform
from pipelineserve_engine.stage_messages import SamplingSpec
from tiny_models import TinyModel


def a_spec(
    *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int = 1, index: int = 0
) -> SamplingSpec:
    return SamplingSpec(temperature, top_k, top_p, seed, index)


def draw_many(logits: torch.Tensor, num_draws: int, **fields: float) -> list[int]:
    specs = [a_spec(index=index, **fields) for index in range(num_draws)]  # type: ignore[arg-type]
    return sample(logits.expand(num_draws, -1), specs)


def frequencies(tokens: list[int], size: int) -> torch.Tensor:
    return torch.bincount(torch.tensor(tokens), minlength=size) / len(tokens)


def test_no_spec_takes_the_likeliest_token() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 3.0, 1.0]])
    assert sample(logits, [None, None]) == [1, 0]


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
    logits=st.lists(st.floats(-50, 50), min_size=1, max_size=40),
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
    token = sample(row[None], [spec])[0]
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
