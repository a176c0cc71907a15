"""A profile as a controller would have measured it: the model of step times that policies use."""

from pipelineserve.policy.step_time import StepCoefficients, StepTimeModel, StepTimeTable
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.hardware.layouts import Layout
from pipelineserve_simulator.pipeline.loads import fresh_prompt


def measured_model(
    profile: HardwareProfile, layout: Layout, max_tokens: int, *, has_host: bool
) -> StepTimeModel:
    """Step times on the slowest stage.

    Args:
        profile: what is measured.
        layout: how the model lies on it.
        max_tokens: the table's end, at least 1.
        has_host: whether a step is what passes between two micro-batches of the leader, its own
            work included, or a stage's computation alone.
    """
    costs = ProfileCosts(profile, layout)
    tokens = _table_tokens(profile, max_tokens)
    stage_index = _slowest_stage(costs, tokens[-1])
    num_layers = layout.partition.layers_per_stage[stage_index]
    host_s = costs.host_s(1) if has_host else 0.0
    attention_s = num_layers * costs.prefill_layer_s
    times_s = [
        costs.stage_times_s(fresh_prompt(num))[stage_index] - 0.5 * attention_s * num * num + host_s
        for num in tokens
    ]
    return StepTimeModel(
        StepTimeTable(tokens, _never_falling(times_s)),
        StepCoefficients(
            decode_context_s=num_layers * costs.context_layer_s,
            squared_prefill_s=0.5 * attention_s,
            past_prefill_s=attention_s,
            decode_s=num_layers * profile.attention.piece_s,
        ),
    )


def _table_tokens(profile: HardwareProfile, max_tokens: int) -> tuple[int, ...]:
    """Both sides of every stair up to the end, and the end."""
    linear = profile.linear
    last_stair = linear.stairs[-1].tokens if linear.stairs else 0
    edges = {stair.tokens for stair in linear.stairs}
    first_tile = last_stair // linear.tile_tokens + 1
    edges |= {
        tile * linear.tile_tokens
        for tile in range(first_tile, max_tokens // linear.tile_tokens + 1)
    }
    upper = set() if linear.has_lines else {edge + 1 for edge in edges}
    sides = {1, max_tokens} | edges | upper
    return tuple(sorted(side for side in sides if side <= max_tokens))


def _slowest_stage(costs: ProfileCosts, num_tokens: int) -> int:
    times_s = costs.stage_times_s(fresh_prompt(num_tokens))
    return max(range(len(times_s)), key=times_s.__getitem__)


def _never_falling(times_s: list[float]) -> tuple[float, ...]:
    """A floor under which attention was hidden may make a table fall by nanoseconds."""
    highest = times_s[0]
    risen: list[float] = []
    for time_s in times_s:
        highest = max(highest, time_s)
        risen.append(highest)
    return tuple(risen)
