"""A profile is what the timings say: timings made from known costs give those costs back."""

from dataclasses import replace
from itertools import pairwise

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.partition import LayerPartition
from pipelineserve_cli.profiles.compositions import (
    Composition,
    Extent,
    compositions_of,
    contexts_of,
    decode_ladder,
    token_ladder,
)
from pipelineserve_cli.profiles.fitting import Measured, fit_profile, never_falling
from pipelineserve_cli.profiles.timings import Timings
from pipelineserve_cli.profiles.words import comment_of
from pipelineserve_simulator.hardware.catalogue import load_profile, profile_from_text
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.hardware.layouts import Layout, kv_tokens
from pipelineserve_simulator.pipeline.loads import StepLoad

EXTENT = Extent(512, 1024)
LAYERS = (26, 22)
LAYOUT = Layout(LayerPartition(LAYERS))
KV_TOKENS = 50_000
HOP_S, TOKEN_HOP_S = 3e-4, 2e-7
GAP_S, REQUEST_GAP_S = 1e-3, 2e-5


def known() -> HardwareProfile:
    """Costs of the shape that can be told from timings: no launches, a cost per piece."""
    shipped = load_profile("a100-40gb-pcie/qwen2.5-14b")
    attention = shipped.attention.model_copy(update={"launch_s": 0.0, "piece_s": 3e-5})
    return shipped.model_copy(update={"attention": attention, "layer_floor_s": 0.0})


def load_of(composition: Composition) -> StepLoad:
    """As the twin sums it up."""
    prefill, decodes = composition.prefill_tokens, composition.num_decodes
    return StepLoad(
        num_tokens=composition.num_tokens,
        num_requests=decodes + bool(prefill),
        num_decodes=decodes,
        num_samples=decodes if composition.samples else 0,
        decode_context_tokens=decodes * composition.context_tokens,
        squared_prefill_tokens=prefill * prefill,
        past_prefill_product=prefill * composition.past_tokens,
    )


def timings_of(costs: ProfileCosts) -> Timings:
    """Each composition timed three times, without noise."""
    timings = Timings(len(LAYERS))
    for composition in compositions_of(EXTENT):
        for stage_index, step_s in enumerate(costs.stage_times_s(load_of(composition))):
            for _ in range(3):
                timings.note(composition, stage_index, step_s, is_alone=False)
                timings.note(composition, stage_index, step_s / 1.5, is_alone=True)
    timings.hops_s = {n: [HOP_S + TOKEN_HOP_S * n] for n in (1, 64, 512)}
    timings.gaps_s = {n: [GAP_S + REQUEST_GAP_S * n] for n in (1, 4, 16)}
    return timings


def measured() -> Measured:
    profile = known()
    timings = timings_of(ProfileCosts(profile, LAYOUT))
    return Measured(profile.model, "made up", LAYERS, KV_TOKENS, timings, EXTENT)


@pytest.mark.parametrize(
    "composition",
    [
        Composition(prefill_tokens=100),
        Composition(prefill_tokens=512),
        Composition(prefill_tokens=60, past_tokens=777),
        Composition(num_decodes=5, context_tokens=333, samples=True),
        Composition(num_decodes=24, context_tokens=900, samples=True),
    ],
)
def test_timings_of_known_costs_give_the_same_steps(composition: Composition) -> None:
    fitted = ProfileCosts(fit_profile(measured()), LAYOUT)
    expected = ProfileCosts(known(), LAYOUT)
    load = load_of(composition)
    assert fitted.stage_times_s(load) == pytest.approx(expected.stage_times_s(load), rel=0.02)


def test_links_and_the_servers_work_come_from_their_lines() -> None:
    fitted = ProfileCosts(fit_profile(measured()), LAYOUT)
    assert fitted.transfer_s(200) == pytest.approx(HOP_S + 200 * TOKEN_HOP_S)
    assert fitted.host_s(8) + fitted.return_s() == pytest.approx(GAP_S + 8 * REQUEST_GAP_S)


@pytest.mark.parametrize(
    ("gaps_s", "fixed_s", "request_s"),
    [({1: 1.0, 2: 3.0}, 0.0, 1.4), ({1: 3.0, 2: 1.0}, 2.0, 0.0)],
)
def test_what_would_be_below_0_is_0_and_the_other_one_is_fitted_alone(
    gaps_s: dict[int, float], fixed_s: float, request_s: float
) -> None:
    what = measured()
    what.timings.hops_s = {}
    what.timings.gaps_s = {num: [gap_s] for num, gap_s in gaps_s.items()}
    host = fit_profile(what).host
    assert (host.step_s, host.request_s) == pytest.approx((fixed_s, request_s))


def test_stages_that_share_are_slower_together() -> None:
    assert fit_profile(measured()).sharing_ratio == pytest.approx(1.5)


def test_the_pool_is_the_engines() -> None:
    assert kv_tokens(fit_profile(measured()), LAYOUT) == pytest.approx(KV_TOKENS, abs=1)


def test_a_rare_long_step_is_a_stall_and_not_a_spread() -> None:
    what = measured()
    composition = compositions_of(EXTENT)[0]
    assert fit_profile(what).noise.stall_ratio == 0.0
    middle_s = what.timings.step_s(composition, 0)
    what.timings.note(composition, 0, 5 * middle_s, is_alone=False)
    noise = fit_profile(what).noise
    assert noise.sigma_ratio == pytest.approx(0.0, abs=1e-9)
    assert noise.stall_s == pytest.approx(4 * middle_s)
    assert 0.0 < noise.stall_ratio < 0.01


def test_the_file_says_the_same_as_the_profile() -> None:
    fitted = fit_profile(measured())
    text = comment_of(measured(), 3) + yaml.safe_dump(fitted.model_dump(mode="json"))
    assert profile_from_text(text, "mine.yaml") == fitted


def test_one_stage_has_no_hand_off() -> None:
    what = replace(measured(), layers_per_stage=(48,))
    what.timings.hops_s = {}
    assert fit_profile(what).link.hop_s == 0.0


@given(st.lists(st.floats(0.0, 1e3), min_size=1, max_size=40))
def test_values_never_fall_and_keep_their_sum(values: list[float]) -> None:
    risen = never_falling(values)
    assert len(risen) == len(values)
    assert all(a <= b for a, b in pairwise(risen))
    assert sum(risen) == pytest.approx(sum(values), abs=1e-6)
    if sorted(values) == values:
        assert risen == values


@given(st.integers(1, 3000))
def test_the_ladder_has_both_ends_and_both_sides_of_every_tile(most: int) -> None:
    ladder = token_ladder(most)
    assert ladder[0] == 1
    assert ladder[-1] == most
    assert list(ladder) == sorted(set(ladder))
    assert all(edge + 1 in ladder for edge in range(128, most, 128))


@given(st.integers(1, 700), st.integers(256, 3000))
def test_every_composition_fits_the_contexts_that_are_filled(chunk: int, context: int) -> None:
    extent = Extent(chunk, context)
    contexts = contexts_of(extent)
    assert len(contexts) >= decode_ladder(chunk)[-1]
    for composition in compositions_of(extent):
        assert composition.num_tokens <= chunk
        needed = max(
            composition.context_tokens, composition.past_tokens + composition.prefill_tokens
        )
        rows = max(1, composition.num_decodes)
        assert all(row >= needed for row in contexts[:rows])
