"""How long the cycle of a full pipeline may last, as a ratio of the TPOT target.

A chunk law that keeps every step within the target leaves room wherever prompts come in bursts:
TPOT is a mean over all tokens of a request, and most of its steps hold no prompt. As long as the
TPOT that requests really have stays below its target while TTFT is at risk, steps may last longer.
"""

from dataclasses import dataclass

from pipelineserve.policy.reasons import Reason

STRETCH_PERIOD_S = 0.5
"""Between two changes: a burst of prompts must find long steps while it still matters."""


@dataclass(frozen=True, slots=True)
class StretchView:
    """What was measured lately.

    Attributes:
        ttft_ratio: the worse of TTFT and of the wait that those in the queue face ÷ target; None if
            nothing tells.
        tpot_ratio: TPOT of those that ended lately at the target's percentile, or the mean cycle
            over dozens of micro-batches, whichever is worse, ÷ target; None if nothing was
            measured. TPOT so far of those that have just started says little: what slows their
            first tokens is gone before they end.
        kv_free_ratio: share of KV blocks that could be taken now.
    """

    ttft_ratio: float | None
    tpot_ratio: float | None
    kv_free_ratio: float


@dataclass(frozen=True, slots=True)
class StretchMemory:
    """What is kept between two decisions.

    Attributes:
        ratio: longest cycle ÷ TPOT target, 1 or more.
        reason: of the latest decision.
        changed_at_s: when it was last asked; None before that.
    """

    ratio: float = 1.0
    reason: Reason = Reason.NO_MEASUREMENT
    changed_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """One step up or down at a time, between 1 and `most_ratio`; KV pressure goes down at once.

    Longer cycles keep more requests at once, whose KV may then run out: that is what bounds them.

    Attributes:
        step_ratio: how far one decision goes.
        most_ratio: longest cycle ÷ TPOT target.
        ttft_risk_ratio: TTFT ÷ target above which steps may grow.
        ttft_slack_ratio: and below which they shrink again.
        tpot_room_ratio: TPOT ÷ target below which there is room to grow.
        tpot_full_ratio: and above which they shrink.
        least_kv_free_ratio: below this share of free KV a cycle is never longer than the target.
    """

    step_ratio: float = 0.5
    most_ratio: float = 2.0
    ttft_risk_ratio: float = 0.5
    ttft_slack_ratio: float = 0.25
    tpot_room_ratio: float = 0.85
    tpot_full_ratio: float = 0.95
    least_kv_free_ratio: float = 0.15

    def decide(self, memory: StretchMemory, view: StretchView, now_s: float) -> StretchMemory:
        """The ratio from now on; it is the memory of the next decision too."""
        if view.kv_free_ratio < self.least_kv_free_ratio:
            return StretchMemory(1.0, Reason.KV_PRESSURE, now_s)
        since_s = memory.changed_at_s
        if since_s is not None and now_s - since_s < STRETCH_PERIOD_S:
            return memory
        num_steps, reason = self._wanted(view)
        ratio = memory.ratio + num_steps * self.step_ratio
        return StretchMemory(max(1.0, min(ratio, self.most_ratio)), reason, now_s)

    def _wanted(self, view: StretchView) -> tuple[int, Reason]:
        """How many steps to go up."""
        if view.tpot_ratio is None or view.ttft_ratio is None:
            return 0, Reason.NO_MEASUREMENT
        if view.tpot_ratio > self.tpot_full_ratio:
            return -1, Reason.TPOT_VIOLATED if view.tpot_ratio > 1.0 else Reason.TPOT_NEAR_TARGET
        if view.ttft_ratio < self.ttft_slack_ratio:
            return -1, Reason.TTFT_HAS_SLACK
        if view.ttft_ratio > self.ttft_risk_ratio and view.tpot_ratio < self.tpot_room_ratio:
            return 1, Reason.TTFT_AT_RISK
        return 0, Reason.TARGETS_MET
