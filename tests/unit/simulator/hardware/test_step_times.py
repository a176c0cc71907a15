"""Step times of the shipped profiles against published facts; nothing here is fitted per fact.

The facts: Hwang & Ahn, "Revisiting Pipeline Parallelism for LLM Serving" (OSDI 2026), on four
A100-40GB-PCIe with Qwen2.5-32B in four stages.
"""

from functools import cache

import pytest
from pydantic import ValidationError

from pipelineserve_simulator.hardware.catalogue import load_profile
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.description import HeadCosts, HeadRows
from pipelineserve_simulator.hardware.layouts import even_layout, kv_tokens, stage_kv_tokens
from pipelineserve_simulator.pipeline.loads import StepLoad

SMALL, LARGE = "a100-40gb-pcie/qwen2.5-14b", "a100-40gb-pcie/qwen2.5-32b"
# The paper's text gives no contexts for its decode steps: a few hundred tokens each.
CONTEXTS = (125, 250, 500)


@cache
def costs_of(name: str, num_stages: int = 4, tensor_parallel: int = 1) -> ProfileCosts:
    profile = load_profile(name)
    return ProfileCosts(profile, even_layout(profile.model, num_stages, tensor_parallel))


def prompt(num_tokens: int, past: int = 0) -> StepLoad:
    return StepLoad(num_tokens, 1, 0, 1, 0, num_tokens * num_tokens, past * num_tokens)


def decodes(num: int, context: int) -> StepLoad:
    return StepLoad(num, num, num, num, num * context, 0, 0)


def tick_s(costs: ProfileCosts, load: StepLoad) -> float:
    """One step of the published system: the slowest stage, and the leader's work."""
    return max(costs.stage_times_s(load)) + costs.host_s(load.num_requests)


def test_whole_model_from_128_to_2048_tokens() -> None:
    costs = costs_of(LARGE)
    longer = [sum(costs.stage_times_s(prompt(num))) for num in (128, 2048)]
    assert longer[1] - longer[0] == pytest.approx(0.627, rel=0.10)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_decode_step_from_96_to_128_and_to_160(context: int) -> None:
    costs = costs_of(LARGE)
    at_96, at_128, at_160 = (tick_s(costs, decodes(num, context)) for num in (96, 128, 160))
    assert at_128 / at_96 - 1.0 == pytest.approx(0.05, abs=0.03)
    assert at_160 / at_128 - 1.0 == pytest.approx(0.31, abs=0.10)


@pytest.mark.parametrize("name", [SMALL, LARGE])
def test_linear_layers_take_129_tokens_for_256(name: str) -> None:
    costs = costs_of(name)
    assert costs.linear_s(129) == pytest.approx(costs.linear_s(256), rel=0.10)
    assert costs.linear_s(129) > 1.2 * costs.linear_s(128)


@pytest.mark.parametrize(
    ("tokens", "published_s"), [(128, 0.020), (256, 0.027), (384, 0.0385), (512, 0.050)]
)
def test_full_ticks_at_the_lower_end(tokens: int, published_s: float) -> None:
    assert tick_s(costs_of(LARGE), prompt(tokens)) == pytest.approx(published_s, rel=0.01)


@pytest.mark.parametrize(
    ("name", "expected_s"),
    [(SMALL, (0.0061, 0.0396, 0.081)), (LARGE, (0.0139, 0.0898, 0.182))],
)
def test_a_stage_without_head_at_128_and_1024_and_2048_tokens(
    name: str, expected_s: tuple[float, ...]
) -> None:
    # The study that the profile comes from gives these; at 128 it had no stairs and was 12 % lower.
    costs = costs_of(name)
    first = [costs.stage_times_s(prompt(tokens))[0] for tokens in (128, 1024, 2048)]
    assert first[1:] == pytest.approx(expected_s[1:], rel=0.02)
    assert 1.0 < first[0] / expected_s[0] < 1.2


def test_tensor_parallelism_spends_more_than_half_its_time_in_all_reduces() -> None:
    costs = costs_of(LARGE, num_stages=1, tensor_parallel=4)
    (step_s,) = costs.stage_times_s(prompt(2048))
    assert step_s == pytest.approx(0.453, rel=0.03)
    all_reduce_s = 64 * 2 * costs._all_reduce_s(2048)
    assert all_reduce_s / step_s == pytest.approx(0.55, abs=0.02)


@pytest.mark.parametrize("name", [SMALL, LARGE])
def test_two_shards_on_each_of_two_stages_are_slower_than_four_stages_at_many_tokens(
    name: str,
) -> None:
    hybrid, pipeline = costs_of(name, 2, 2), costs_of(name, 4)
    assert hybrid.num_stages == 2
    assert max(hybrid.stage_times_s(prompt(2048))) > max(pipeline.stage_times_s(prompt(2048)))


def test_only_the_last_stage_has_the_head_and_only_for_samples() -> None:
    costs = costs_of(LARGE)
    first, *_, last = costs.stage_times_s(decodes(32, 100))
    assert last - first == pytest.approx(costs.head_s(32))
    assert len(set(costs.stage_times_s(StepLoad(64, 1, 0, 0, 0, 64 * 64, 0)))) == 1


@pytest.mark.parametrize(
    ("more", "less"),
    [
        (prompt(100, past=500), prompt(100)),
        (decodes(10, 600), decodes(10, 500)),
        (decodes(11, 500), decodes(10, 500)),
        (prompt(1025), prompt(1024)),
    ],
    ids=["past", "context", "decodes", "tile"],
)
def test_more_of_anything_never_takes_less(more: StepLoad, less: StepLoad) -> None:
    costs = costs_of(LARGE)
    for longer, shorter in zip(costs.stage_times_s(more), costs.stage_times_s(less), strict=True):
        assert longer > shorter


@pytest.mark.parametrize(("name", "published"), [(SMALL, 624_000), (LARGE, 331_000)])
def test_room_for_kv(name: str, published: int) -> None:
    profile = load_profile(name)
    for num_stages, tensor_parallel in ((4, 1), (1, 4)):
        layout = even_layout(profile.model, num_stages, tensor_parallel)
        assert kv_tokens(profile, layout) == pytest.approx(published, rel=0.001)
    ends = stage_kv_tokens(profile, even_layout(profile.model, 4))
    assert ends[0] == ends[-1] < ends[1] == ends[2]


def test_a_handed_on_micro_batch_costs_latency_and_bytes() -> None:
    costs = costs_of(LARGE)
    assert costs.transfer_s(0) == costs.return_s() == 60e-6
    assert costs.transfer_s(512) == pytest.approx(60e-6 + 512 * 20_480 / 11e9)


def test_launching_its_kernels_bounds_a_layer_from_below() -> None:
    (step_s,) = costs_of(SMALL, num_stages=1, tensor_parallel=4).stage_times_s(decodes(1, 1))
    all_reduce_s = 48 * 2 * (45e-6 + 20_480 * 0.75 / 16.5e9)
    head_s = costs_of(SMALL, 1, 4).head_s(1)
    assert step_s - all_reduce_s - head_s == pytest.approx(48 * 0.28e-3)


def a_measured(*, has_lines: bool = True) -> ProfileCosts:
    """One stage whose first stairs and head were measured."""
    shipped = load_profile(SMALL)
    linear = shipped.linear.model_copy(update={"has_lines": has_lines})
    head = HeadCosts(
        fixed_s=1.0,
        output_s=0.5,
        measured=(HeadRows(rows=1, head_s=2.0), HeadRows(rows=5, head_s=4.0)),
    )
    attention = shipped.attention.model_copy(update={"piece_s": 0.25})
    profile = shipped.model_copy(update={"linear": linear, "head": head, "attention": attention})
    return ProfileCosts(profile, even_layout(profile.model, 1))


def test_between_measured_stairs_the_time_is_on_the_line() -> None:
    costs, stairs = a_measured(), load_profile(SMALL).linear.stairs
    middle = (stairs[0].tokens + stairs[1].tokens) // 2
    mean_s = (stairs[0].layer_s + stairs[1].layer_s) / 2
    assert costs.linear_s(middle) == pytest.approx(mean_s)
    assert costs.linear_s(1) == stairs[0].layer_s
    assert costs.linear_s(stairs[1].tokens) == pytest.approx(stairs[1].layer_s)
    assert a_measured(has_lines=False).linear_s(middle) == stairs[1].layer_s


@pytest.mark.parametrize(("rows", "head_s"), [(0, 0.0), (1, 2.0), (3, 3.0), (5, 4.0), (9, 6.0)])
def test_a_measured_head_is_on_its_lines_and_goes_on_per_token(rows: int, head_s: float) -> None:
    assert a_measured().head_s(rows) == pytest.approx(head_s)


def test_every_decode_has_a_kernel_of_its_own_where_it_was_measured_so() -> None:
    costs = a_measured()
    one, two = (costs.layer_s(decodes(num, 0)) for num in (1, 2))
    assert two - one == pytest.approx(0.25 + costs.linear_s(2) - costs.linear_s(1), abs=1e-5)


def test_measured_heads_must_not_fall() -> None:
    with pytest.raises(ValidationError, match="ascending rows and times that never fall"):
        HeadCosts(
            fixed_s=0.0,
            output_s=0.0,
            measured=(HeadRows(rows=1, head_s=2.0), HeadRows(rows=2, head_s=1.0)),
        )
