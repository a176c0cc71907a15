"""Rows 1 and 2: single steps, straight from the profile; nothing is simulated."""

from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.pipeline.loads import StepLoad
from pipelineserve_simulator.reproduce.findings import (
    Finding,
    RowResult,
    Unit,
    between,
    within_points,
    within_ratio,
)
from pipelineserve_simulator.reproduce.study import Study
from pipelineserve_simulator.reproduce.systems import ModelName, static

# The paper does not tell it; short enough for 160 requests to say something of linear layers.
_CONTEXT_TOKENS = 250
_BASIS = "from the profile, without noise"


def whole_model_difference(study: Study) -> RowResult:
    """A prompt of 2,048 tokens against one of 128, on all stages together."""
    del study
    costs = _costs()
    longer, shorter = (sum(costs.stage_times_s(_prompt(tokens))) for tokens in (2048, 128))
    return RowResult(
        "1",
        "T(2048) - T(128), whole model",
        (
            Finding(
                "T(2048) - T(128)",
                "627 ms",
                longer - shorter,
                Unit.MS,
                within_ratio(0.627, 0.10),
                basis=_BASIS,
            ),
        ),
    )


def staircase(study: Study) -> RowResult:
    """What 32 more decodes cost below a boundary and across it, and whether stairs are flat."""
    del study
    costs = _costs()
    below, at, above = (_decode_step_s(costs, num) for num in (96, 128, 160))
    basis = f"{_BASIS}, contexts of {_CONTEXT_TOKENS} tokens"
    return RowResult(
        "2",
        "The staircase of linear layers",
        (
            Finding(
                "decode step, 96 to 128 requests",
                "+5 %",
                at / below - 1,
                Unit.PERCENT,
                within_points(0.05, 3),
                basis=basis,
            ),
            Finding(
                "decode step, 128 to 160 requests",
                "+31 %",
                above / at - 1,
                Unit.PERCENT,
                within_points(0.31, 10),
                basis=basis,
            ),
            Finding(
                "linear layers, 129 against 256 tokens",
                "equal",
                costs.linear_s(129) / costs.linear_s(256),
                Unit.RATIO,
                between(0.9, 1.1, "± 10 %"),
                basis=_BASIS,
            ),
        ),
    )


def _costs() -> ProfileCosts:
    profile = ModelName.QWEN_32B.profile
    return ProfileCosts(profile, static(512).layout(profile))


def _decode_step_s(costs: ProfileCosts, num_requests: int) -> float:
    """A lock step of four such micro-batches, the leader's work included."""
    load = StepLoad(
        num_tokens=num_requests,
        num_requests=num_requests,
        num_decodes=num_requests,
        num_samples=num_requests,
        decode_context_tokens=num_requests * _CONTEXT_TOKENS,
        squared_prefill_tokens=0,
        past_prefill_product=0,
    )
    return max(costs.stage_times_s(load)) + costs.host_s(num_requests)


def _prompt(num_tokens: int) -> StepLoad:
    return StepLoad(
        num_tokens=num_tokens,
        num_requests=1,
        num_decodes=0,
        num_samples=1,
        decode_context_tokens=0,
        squared_prefill_tokens=num_tokens * num_tokens,
        past_prefill_product=0,
    )
