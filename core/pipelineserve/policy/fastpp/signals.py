"""TTFT and TPOT as FastPP's controllers see them: what came since the last decision."""

from dataclasses import dataclass
from enum import Enum

from pipelineserve.policy.fastpp.views import FastppView, LatencyTotals


class Statistic(Enum):
    """What is made of the samples: the released code's plain mean, or the paper's P90."""

    MEAN = "mean"
    P90 = "p90"


@dataclass(frozen=True, slots=True)
class Signals:
    """Latest values, kept while no new sample comes, and the totals that they came from."""

    ttft_s: float
    tpot_s: float
    seen: LatencyTotals

    def has_new_ttft(self, view: FastppView) -> bool:
        """Whether a first token came since."""
        return view.totals.num_ttft > self.seen.num_ttft

    def drained(self, view: FastppView, statistic: Statistic) -> "Signals":
        """Take all samples that came since."""
        now, seen = view.totals, self.seen
        ttft_s = _mean(now.num_ttft - seen.num_ttft, now.ttft_sum_s - seen.ttft_sum_s)
        tpot_s = _mean(now.num_tpot - seen.num_tpot, now.tpot_sum_s - seen.tpot_sum_s)
        if statistic is Statistic.P90:
            ttft_s, tpot_s = view.ttft_p90_s, view.tpot_p90_s
        return Signals(
            ttft_s=self.ttft_s if ttft_s is None else ttft_s,
            tpot_s=self.tpot_s if tpot_s is None else tpot_s,
            seen=now,
        )


def first_signals(ttft_target_s: float, tpot_target_s: float) -> Signals:
    """Before anything was measured: half the targets."""
    return Signals(ttft_s=0.5 * ttft_target_s, tpot_s=0.5 * tpot_target_s, seen=LatencyTotals())


def _mean(num: int, sum_s: float) -> float | None:
    return sum_s / num if num > 0 else None
