"""A load before anything is sent: requests with their times, and how they arose."""

from dataclasses import dataclass
from enum import Enum

from pipelineserve.load.prompts import Prompt, SyntheticPrompt


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request.

    Attributes:
        at_s: when to send it, from the run's start.
        max_tokens: the most that the server may generate; with ignore_eos, exactly that many.
        is_warm_up: sent like any other and left out of every figure.
    """

    index: int
    at_s: float
    prompt: Prompt
    max_tokens: int
    is_warm_up: bool = False

    @property
    def prompt_tokens(self) -> int | None:
        """How many were asked for; None for texts, which only the server can count."""
        return self.prompt.num_tokens if isinstance(self.prompt, SyntheticPrompt) else None


class Bound(Enum):
    """What ended the plan."""

    REQUESTS = "the number of requests"
    DURATION = "the duration"
    ROWS = "the file's last row"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A whole load, in order of time; the same settings and files give the same plan.

    Attributes:
        arrivals: the process in words.
        lengths: where the lengths come from, in words.
        rows: which rows of which file were used, in words.
    """

    requests: tuple[PlannedRequest, ...]
    seed: int
    arrivals: str
    lengths: str
    rows: str
    bound: Bound

    @property
    def measured(self) -> tuple[PlannedRequest, ...]:
        """All but the warm-up."""
        return tuple(request for request in self.requests if not request.is_warm_up)

    @property
    def num_warm_up(self) -> int:
        """Requests that are left out of every figure."""
        return len(self.requests) - len(self.measured)
