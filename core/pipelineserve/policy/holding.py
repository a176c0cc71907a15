"""Delay scheduling: which decodes stay out of their micro-batch for now, and who comes back."""

from dataclasses import dataclass
from enum import Enum

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import DecodeLoad


class HoldEnd(Enum):
    """Which of a pool's decodes are held first, by the arrival of their requests.

    The oldest have the most tokens to spread a gap over; holding the newest lets the oldest finish.
    """

    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class HoldPlan:
    """What to do before one micro-batch takes its decodes.

    Releasing comes first, and who was released is not held again before it has had a token.

    Attributes:
        num_release: held decodes to make ready again, those first that were held first.
        num_hold: ready decodes to put among the held ones, from `end` on.
        end: which end of the pool yields.
        reason: why.
    """

    num_hold: int
    num_release: int
    end: HoldEnd
    reason: Reason


@dataclass(frozen=True, slots=True)
class HoldView:
    """The decodes of one slot's pool before a micro-batch takes some of them; sums only.

    With one pool for all slots, the pool is the same for each slot. The scheduler keeps the sums as
    decodes become ready, are issued, held, released, or end:

    - `due` comes from the decode assignment, as `LoadView.assigned` does.
    - `num_holdable` and `num_overdue` depend on the policy's `max_gap_s` and `hold_budget_s`. A
      decode's gap is the time since its last token, its budget what is left of `hold_budget_s`
      after all times in which it was held. A ready decode is holdable if its gap plus one cycle
      stays within the largest gap, one cycle fits its budget, and it has had a token since it was
      last released. A held one is overdue as soon as that no longer holds.

    Attributes:
        num_slots: micro-batches that can be in flight at once.
        due: decodes that this micro-batch would take if nothing were held or released now.
        live: decodes that are not held, ready or in flight, of all slots.
        held: decodes held, of all slots.
        num_holdable: those of `due` that may be held.
        num_overdue: those of `held` that must go with this micro-batch.
        prefill_tokens: prompt tokens that could go with this micro-batch, were there no budget.
        kv_free_ratio: share of KV blocks that could be taken now.
    """

    num_slots: int
    due: DecodeLoad
    live: DecodeLoad
    held: DecodeLoad
    num_holdable: int
    num_overdue: int
    prefill_tokens: int
    kv_free_ratio: float


@dataclass(frozen=True, slots=True)
class HoldNothing:
    """Everybody who is held comes back, for a reason that was found elsewhere."""

    reason: Reason = Reason.HOLDING_OFF

    def decide(self, view: HoldView) -> HoldPlan:
        """Release all."""
        return HoldPlan(0, view.held.num, HoldEnd.NEWEST, self.reason)
