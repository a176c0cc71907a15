"""Everything that a controller may tell a scheduler, as one value that is put in force at once."""

from dataclasses import dataclass, field

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.rebalancing import Rebalance
from pipelineserve.policy.triage import Triage


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """How to compose micro-batches until something newer is put in force.

    Attributes:
        chunking: the same budget for each, or one predicted for each.
        order: who of the waiting goes first.
        holding: which decodes stay out for now.
    """

    chunking: Static | Predictive
    order: Arrival | Ageing | Triage = field(default_factory=Arrival)
    holding: Rebalance | HoldNothing = field(default_factory=HoldNothing)


@dataclass(frozen=True, slots=True)
class LeasedPolicy:
    """A policy, for how long it holds, and what comes after it.

    Attributes:
        policy: to be put in force.
        lease_s: for how many seconds it holds without a newer one.
        static_chunk_tokens: the chunk that holds once a lease has ended; None: as it was.
    """

    policy: SchedulingPolicy
    lease_s: float
    static_chunk_tokens: int | None = None
