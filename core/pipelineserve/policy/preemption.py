"""Preemption: whether a request that yields keeps its KV in host memory or computes it again."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from pipelineserve.policy.reasons import Reason


class Preemption(Enum):
    """What becomes of the KV of a request that yields its blocks."""

    SWAP = "swap"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class KvCosts:
    """What a preemption costs, as measured on the slowest stage; None: not measured yet.

    Attributes:
        recompute_s_per_token: computation of one token of a prompt.
        copy_s_per_block: copying one KV block one way between device and host.
    """

    recompute_s_per_token: float | None = None
    copy_s_per_block: float | None = None


UNMEASURED = KvCosts()


@dataclass(frozen=True, slots=True)
class PreemptionView:
    """One victim at the moment in which it yields.

    Attributes:
        num_tokens: tokens that a recompute would have to compute: those with KV, less those in
            blocks that another request holds too and that will therefore be found again.
        num_blocks: KV blocks that a swap would copy out, and in again later.
        num_host_blocks_free: host blocks that could take them.
        costs: measured so far.
    """

    num_tokens: int
    num_blocks: int
    num_host_blocks_free: int
    costs: KvCosts


@dataclass(frozen=True, slots=True)
class PreemptionDecision:
    """SWAP only where the host pool has room for all of the victim's blocks."""

    preemption: Preemption
    reason: Reason


class PreemptionPolicy(Protocol):
    """Maps one victim to what becomes of its KV."""

    def decide(self, view: PreemptionView) -> PreemptionDecision:
        """Choose; never SWAP beyond `view.num_host_blocks_free`."""
        ...


@dataclass(frozen=True, slots=True)
class ByCost:
    """The cheaper one by measured costs; recompute as long as they are not known."""

    def decide(self, view: PreemptionView) -> PreemptionDecision:
        """Compare computing its tokens with copying its blocks twice, out and in again."""
        if view.num_blocks > view.num_host_blocks_free:
            return PreemptionDecision(Preemption.RECOMPUTE, Reason.NO_HOST_BLOCKS)
        token_s, block_s = view.costs.recompute_s_per_token, view.costs.copy_s_per_block
        if token_s is None or block_s is None:
            return PreemptionDecision(Preemption.RECOMPUTE, Reason.COSTS_NOT_MEASURED)
        if 2 * view.num_blocks * block_s < view.num_tokens * token_s:
            return PreemptionDecision(Preemption.SWAP, Reason.SWAP_IS_CHEAPER)
        return PreemptionDecision(Preemption.RECOMPUTE, Reason.RECOMPUTE_IS_CHEAPER)


@dataclass(frozen=True, slots=True)
class AlwaysRecompute:
    """Never keep anything: for comparison."""

    def decide(self, view: PreemptionView) -> PreemptionDecision:
        """Recompute."""
        del view
        return PreemptionDecision(Preemption.RECOMPUTE, Reason.FIXED_PREEMPTION)


@dataclass(frozen=True, slots=True)
class AlwaysSwap:
    """Keep what the host pool has room for, whatever it costs: for comparison."""

    def decide(self, view: PreemptionView) -> PreemptionDecision:
        """Swap, unless there is no room."""
        if view.num_blocks > view.num_host_blocks_free:
            return PreemptionDecision(Preemption.RECOMPUTE, Reason.NO_HOST_BLOCKS)
        return PreemptionDecision(Preemption.SWAP, Reason.FIXED_PREEMPTION)
