"""Where a pipeline stands between a failure of its stages and serving again."""

from collections import deque
from enum import Enum

from pipelineserve.policy.recovery import RecoveryBudget, RecoveryDecision, RecoveryView

_MAX_REMEMBERED_FAILURES = 1024


class Phase(Enum):
    """What the engine loop may do."""

    SERVING = "serving"
    PAUSING = "pausing"
    LOADING = "loading"


class Recovery:
    """Counts failures and the stages that are ready again.

    Starts as serving: the first start of the stages is their starter's to wait for.
    """

    def __init__(self, budget: RecoveryBudget, num_stages: int) -> None:
        self._budget = budget
        self._num_stages = num_stages
        self._num_ready = num_stages
        self._restart_at_s: float | None = None
        self._failure_times_s: deque[float] = deque(maxlen=_MAX_REMEMBERED_FAILURES)
        self.cause = ""

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        if self._restart_at_s is not None:
            return Phase.PAUSING
        return Phase.SERVING if self._num_ready == self._num_stages else Phase.LOADING

    def fail(self, cause: str, now_s: float) -> RecoveryDecision:
        """Note a failure and what follows; a decision not to restart leaves it pausing for ever."""
        self.cause = cause
        self._failure_times_s.append(now_s)
        decision = self._budget.decide(RecoveryView(now_s, tuple(self._failure_times_s)))
        self._restart_at_s = decision.restart_at_s
        return decision

    def seconds_to_restart(self, now_s: float) -> float | None:
        """How long the pause still lasts, 0 when it is over; None outside a pause."""
        return None if self._restart_at_s is None else max(0.0, self._restart_at_s - now_s)

    def restart(self) -> None:
        """The stages are being started."""
        self._restart_at_s = None
        self._num_ready = 0

    def stage_ready(self) -> None:
        """One more stage has loaded its weights."""
        self._num_ready += 1
