"""Recovery: whether a pipeline whose stages have failed is started again, and when."""

from dataclasses import dataclass

from pipelineserve.policy.reasons import Reason


@dataclass(frozen=True, slots=True)
class RecoveryView:
    """Failures of one pipeline up to now; the latest is the one to decide about."""

    now_s: float
    failure_times_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RecoveryDecision:
    """Start again at `restart_at_s`, or never if it is None."""

    restart_at_s: float | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class RecoveryBudget:
    """Restarts with a growing pause, up to a number within a window.

    Attributes:
        max_restarts: failures within the window that are still recovered from.
        window_s: failures older than this are forgotten.
        first_pause_s: before the first restart within the window; doubles with each further one.
        longest_pause_s: bound of the pause.
    """

    max_restarts: int
    window_s: float
    first_pause_s: float = 0.25
    longest_pause_s: float = 30.0

    def decide(self, view: RecoveryView) -> RecoveryDecision:
        """Decide about the latest failure."""
        recent = sum(1 for at_s in view.failure_times_s if view.now_s - at_s <= self.window_s)
        if recent > self.max_restarts:
            return RecoveryDecision(None, Reason.RECOVERY_BUDGET_SPENT)
        pause_s = min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(recent - 1, 32))
        return RecoveryDecision(view.now_s + pause_s, Reason.STAGES_FAILED)
