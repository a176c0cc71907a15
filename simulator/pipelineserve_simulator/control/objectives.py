"""What a simulated controller is asked for, with the resource's own defaults for the rest."""

from dataclasses import dataclass

from pipelineserve.policy.control.objectives import (
    ChunkLaw,
    HoldLaw,
    LatencyGoal,
    Mode,
    Objectives,
    OrderLaw,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The live part of a resource, as far as a simulation varies it.

    Attributes:
        ttft, tpot: None without such a target.
        static_tokens: chunk to begin with, and without a lease; within the smallest and largest.
        window_s: over which targets are judged.
        max_gap_s: longest gap between two tokens that holding may cause.
        lease_s: how long a policy holds without being renewed.
        stale_s: how long the last safe policy is renewed while nothing fresh is seen.
    """

    ttft: LatencyGoal | None
    tpot: LatencyGoal | None
    static_tokens: int = 512
    min_tokens: int = 128
    max_tokens: int = 2048
    step_tokens: int = 128
    chunk_law: ChunkLaw = ChunkLaw.PREDICTIVE
    order_law: OrderLaw = OrderLaw.AGEING
    hold_law: HoldLaw = HoldLaw.AUTO
    late_share_ratio: float = 0.05
    window_s: float = 300.0
    max_gap_s: float = 2.0
    lease_s: float = 5.0
    stale_s: float = 30.0


def objectives_of(asked: Asked, generation: int = 1) -> Objectives:
    """The objectives of a resource that asks for this and is followed."""
    return Objectives(
        resource_uid="simulated",
        generation=generation,
        ttft=asked.ttft,
        tpot=asked.tpot,
        window_s=asked.window_s,
        chunk_law=asked.chunk_law,
        min_tokens=asked.min_tokens,
        max_tokens=asked.max_tokens,
        step_tokens=asked.step_tokens,
        static_tokens=asked.static_tokens,
        hold_law=asked.hold_law,
        max_gap_s=asked.max_gap_s,
        order_law=asked.order_law,
        late_share_ratio=asked.late_share_ratio,
        mode=Mode.ACTIVE,
        lease_s=asked.lease_s,
        stale_s=asked.stale_s,
    )
