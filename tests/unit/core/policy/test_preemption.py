"""What becomes of a victim's KV, by what it costs."""

import pytest

from pipelineserve.policy.preemption import (
    AlwaysRecompute,
    AlwaysSwap,
    ByCost,
    KvCosts,
    Preemption,
    PreemptionDecision,
    PreemptionPolicy,
    PreemptionView,
)
from pipelineserve.policy.reasons import Reason

SWAP, RECOMPUTE = Preemption.SWAP, Preemption.RECOMPUTE


def a_view(
    *,
    num_tokens: int = 100,
    num_blocks: int = 10,
    num_host_blocks_free: int = 10,
    recompute_s_per_token: float | None = 0.01,
    copy_s_per_block: float | None = 0.001,
) -> PreemptionView:
    costs = KvCosts(recompute_s_per_token, copy_s_per_block)
    return PreemptionView(num_tokens, num_blocks, num_host_blocks_free, costs)


@pytest.mark.parametrize(
    ("num_tokens", "copy_s_per_block", "expected"),
    [
        (100, 0.001, PreemptionDecision(SWAP, Reason.SWAP_IS_CHEAPER)),
        (100, 0.049, PreemptionDecision(SWAP, Reason.SWAP_IS_CHEAPER)),
        (100, 0.051, PreemptionDecision(RECOMPUTE, Reason.RECOMPUTE_IS_CHEAPER)),
        (1, 0.001, PreemptionDecision(RECOMPUTE, Reason.RECOMPUTE_IS_CHEAPER)),
    ],
    ids=["far cheaper", "just cheaper, there and back", "just dearer", "nearly all is shared"],
)
def test_the_cheaper_one_is_taken_and_a_copy_counts_twice(
    num_tokens: int, copy_s_per_block: float, expected: PreemptionDecision
) -> None:
    view = a_view(num_tokens=num_tokens, copy_s_per_block=copy_s_per_block)
    assert ByCost().decide(view) == expected


@pytest.mark.parametrize(
    "view", [a_view(recompute_s_per_token=None), a_view(copy_s_per_block=None)]
)
def test_a_cost_that_is_not_known_yet_speaks_for_computing_again(view: PreemptionView) -> None:
    assert ByCost().decide(view) == PreemptionDecision(RECOMPUTE, Reason.COSTS_NOT_MEASURED)


@pytest.mark.parametrize("policy", [ByCost(), AlwaysSwap()])
def test_nothing_is_swapped_beyond_the_free_host_blocks(policy: PreemptionPolicy) -> None:
    view = a_view(num_blocks=10, num_host_blocks_free=9)
    assert policy.decide(view) == PreemptionDecision(RECOMPUTE, Reason.NO_HOST_BLOCKS)


def test_the_fixed_ones_look_at_no_cost() -> None:
    dear = a_view(copy_s_per_block=1000.0)
    assert AlwaysSwap().decide(dear) == PreemptionDecision(SWAP, Reason.FIXED_PREEMPTION)
    cheap = a_view(copy_s_per_block=0.0)
    assert AlwaysRecompute().decide(cheap) == PreemptionDecision(RECOMPUTE, Reason.FIXED_PREEMPTION)
