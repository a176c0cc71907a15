"""Which decodes yield when the user leaves it to the controller: the oldest while TPOT is near."""

from dataclasses import dataclass

from pipelineserve.policy.rebalancing import HoldMode


@dataclass(frozen=True, slots=True)
class AutoHoldMode:
    """Chooses by TPOT; between the two ratios it keeps what it chose before.

    Attributes:
        tpot_target_s: target of TPOT; None always lets the newest yield.
        tpot_first_ratio: TPOT ÷ target from which the oldest yield.
        e2e_first_ratio: and below which the newest do again.
    """

    tpot_target_s: float | None
    tpot_first_ratio: float = 0.9
    e2e_first_ratio: float = 0.8

    def decide(self, memory: HoldMode, tpot_s: float | None) -> HoldMode:
        """The mode for now; it is the memory of the next decision too.

        Args:
            memory: the mode before; E2E_FIRST at first.
            tpot_s: TPOT measured lately at its target's percentile, held requests counted with the
                time since their last token; None if nothing was measured.
        """
        if self.tpot_target_s is None:
            return HoldMode.E2E_FIRST
        if tpot_s is None:
            return memory
        is_late = memory is HoldMode.TPOT_FIRST
        ratio = self.e2e_first_ratio if is_late else self.tpot_first_ratio
        return HoldMode.TPOT_FIRST if tpot_s >= ratio * self.tpot_target_s else HoldMode.E2E_FIRST
