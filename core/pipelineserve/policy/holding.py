"""Delay scheduling: which decodes stay out of their micro-batch for now, and who comes back."""

from dataclasses import dataclass
from enum import Enum

from pipelineserve.policy.reasons import Reason


class HoldEnd(Enum):
    """Which of a pool's decodes are held first, by the arrival of their requests.

    The oldest have the most tokens to spread a gap over; holding the newest lets the oldest finish.
    """

    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class HoldPlan:
    """What to do before one micro-batch takes its decodes; at most one of the numbers is above 0.

    Attributes:
        num_hold: ready decodes to put among the held ones, from `end` on.
        num_release: held decodes to make ready again, those first that were held first.
        end: which end of the pool yields.
        reason: why.
    """

    num_hold: int
    num_release: int
    end: HoldEnd
    reason: Reason
