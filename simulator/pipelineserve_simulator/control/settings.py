"""What a simulated controller follows, and how far away it is."""

from collections.abc import Callable
from dataclasses import dataclass

from pipelineserve.policy.control.objectives import Objectives
from pipelineserve.policy.control.observation import Observation
from pipelineserve.policy.control.turns import Turn
from pipelineserve.policy.scheduling import LeasedPolicy

# The sidecar's own period.
PERIOD_S = 0.2
# A message over a socket between two processes of one machine, with what it takes to make and read.
DELAY_S = 0.001
# The answer to a policy that takes two seconds counts as none in the sidecar, which is not played.
MOST_DELAY_S = 0.9


@dataclass(frozen=True, slots=True)
class Edit:
    """Somebody edits the objectives at this time."""

    at_s: float
    objectives: Objectives


@dataclass(frozen=True, slots=True)
class TurnTaken:
    """The controller has taken a turn."""

    now_s: float
    turn: Turn
    observation: Observation


@dataclass(frozen=True, slots=True)
class PolicyAdopted:
    """A policy has reached the scheduler and is in force."""

    now_s: float
    leased: LeasedPolicy


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """The static chunk is back."""

    now_s: float


ControlEvent = TurnTaken | PolicyAdopted | LeaseEnded


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """A controller.

    Attributes:
        objectives: what it is asked for from the beginning.
        edits: what it is asked for later, in the order of time.
        period_s: between two turns.
        delay_s: how long records and policies travel, each way.
        observe: told of what happens, at its virtual time.

    Raises:
        ValueError: the edits are not in order, or a time is out of its bounds.
    """

    objectives: Objectives
    edits: tuple[Edit, ...] = ()
    period_s: float = PERIOD_S
    delay_s: float = DELAY_S
    observe: Callable[[ControlEvent], None] | None = None

    def __post_init__(self) -> None:
        times_s = [edit.at_s for edit in self.edits]
        if times_s != sorted(times_s) or any(at_s < 0.0 for at_s in times_s):
            raise ValueError(f"edits: expected times from 0 on in their order, got {times_s}")
        if not 0.001 <= self.period_s <= 60.0:
            raise ValueError(f"period_s: expected 0.001 to 60, got {self.period_s}")
        if not 0.0 <= self.delay_s <= MOST_DELAY_S:
            raise ValueError(f"delay_s: expected 0 to {MOST_DELAY_S}, got {self.delay_s}")

    def objectives_at(self, now_s: float) -> Objectives:
        """What it is asked for at that time, edits of that very instant included."""
        current = self.objectives
        for edit in self.edits:
            if edit.at_s <= now_s:
                current = edit.objectives
        return current

    def note(self, event: ControlEvent) -> None:
        """Tell of it whoever wants to know."""
        if self.observe is not None:
            self.observe(event)
