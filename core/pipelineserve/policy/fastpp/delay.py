"""FastPP's delay scheduling: decodes above a multiple of 128 per slot wait, or are evened out."""

from dataclasses import dataclass, replace

from pipelineserve.policy.fastpp.bounds import UNIT_TOKENS
from pipelineserve.policy.fastpp.views import SlotView
from pipelineserve.policy.holding import HoldEnd, HoldPlan
from pipelineserve.policy.reasons import Reason


@dataclass(frozen=True, slots=True)
class FastppDelayView:
    """The slot to be filled, before its prompts are chosen.

    The last three are as of the chunk controller's last decision, as they were published then, so
    up to two cycles old.

    Attributes:
        slot_index: that slot.
        slots: every slot's last micro-batch, in the order of slots.
        num_ready: decodes of this slot, those of a prompt just completed included.
        num_held: decodes held, of all slots together.
        tpot_signal_s: TPOT in the controller's signals.
        waiting_tokens: prompt tokens in the queue.
        kv_free_ratio: share of KV that was free.
    """

    slot_index: int
    slots: tuple[SlotView, ...]
    num_ready: int
    num_held: int
    tpot_signal_s: float
    waiting_tokens: int
    kv_free_ratio: float


@dataclass(frozen=True, slots=True)
class FastppDelay:
    """Asked before every micro-batch.

    Attributes:
        tpot_target_s: target of TPOT.
        unit_requests: requests per slot at which a step is believed to become slower.
        margin_ratio: width of the band above it in which the excess waits.
        tpot_first_ratio: TPOT ÷ target from which the oldest wait instead of the newest.
        headroom_tokens: with more waiting tokens and KV free, nothing is held; None: as in the
            paper, which has no such rule.
        least_kv_free_ratio: KV counts as free above this share.
        is_aligning: whether slots outside the band are brought down to the mean, as the paper
            says; the released code only sheds what is above the next unit.
    """

    tpot_target_s: float
    unit_requests: int = UNIT_TOKENS
    margin_ratio: float = 0.4
    tpot_first_ratio: float = 0.9
    headroom_tokens: int | None = 1024
    least_kv_free_ratio: float = 0.10
    is_aligning: bool = False

    def as_in_the_paper(self) -> "FastppDelay":
        """The same target with the paper's rules where the released code differs."""
        return replace(self, headroom_tokens=None, is_aligning=True)

    def decide(self, view: FastppDelayView) -> HoldPlan:
        """Say how many of this slot's decodes to hold, or how many held ones it takes."""
        num_slots = len(view.slots)
        total = _num_requests(view)
        step = self.unit_requests * num_slots
        threshold = total // step * step
        is_suppressing = 0 < threshold <= total < threshold + self.margin_ratio * step
        if is_suppressing and not self._has_headroom(view):
            target = threshold // num_slots
            return self._plan(view, target, target, Reason.ABOVE_BOUNDARY)
        mean = total // num_slots
        # With fewer requests than slots a slot still keeps the one that it has.
        most = max(1, mean) if self.is_aligning else threshold // num_slots + self.unit_requests
        if self._has_headroom(view):
            most = view.num_ready
        return self._plan(view, mean, most, Reason.SLOTS_UNEVEN)

    def _plan(self, view: FastppDelayView, least: int, most: int, reason: Reason) -> HoldPlan:
        """Fill up to `least` from those held, else shed what is above `most`."""
        is_tpot_first = view.tpot_signal_s >= self.tpot_first_ratio * self.tpot_target_s
        end = HoldEnd.OLDEST if is_tpot_first else HoldEnd.NEWEST
        num_release = min(max(0, least - view.num_ready), view.num_held)
        if num_release > 0:
            return HoldPlan(0, num_release, end, reason)
        num_hold = max(0, view.num_ready - most)
        return HoldPlan(num_hold, 0, end, reason if num_hold else Reason.SLOTS_EVEN)

    def _has_headroom(self, view: FastppDelayView) -> bool:
        return (
            self.headroom_tokens is not None
            and view.waiting_tokens > self.headroom_tokens
            and view.kv_free_ratio > self.least_kv_free_ratio
        )


def _num_requests(view: FastppDelayView) -> int:
    """Requests of all last micro-batches and those held; other slots' prompts being cut are not."""
    in_slots = sum(
        slot.num_requests if index == view.slot_index else slot.num_running
        for index, slot in enumerate(view.slots)
    )
    return in_slots + view.num_held
