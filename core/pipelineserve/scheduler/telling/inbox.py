"""What came from the engine and has not been looked at; bounded, whatever the engine sends."""

from pipelineserve.policy.control.heard import (
    EngineFacts,
    Heard,
    RequestSeen,
    Standing,
    StepSeen,
    Told,
)

# A model learns from a sample of the steps as well as from all, and a journal stays small.
MAX_STEPS_PER_TURN = 16
MAX_REQUESTS_PER_TURN = 4096
_MAX_STEPS_KEPT = 8192


class Inbox:
    """Collects events until a turn takes them."""

    def __init__(self) -> None:
        self._steps: list[StepSeen] = []
        self._requests: list[RequestSeen] = []
        self._standing: Standing | None = None
        self._num_steps = 0
        self._num_lost = 0
        self._num_refused = 0
        self._num_dropped = 0

    def put(self, told: Told) -> None:
        """Keep one event's records."""
        self._steps += told.steps[: _MAX_STEPS_KEPT - len(self._steps)]
        room = MAX_REQUESTS_PER_TURN - len(self._requests)
        self._requests += told.requests[:room]
        self._num_dropped += max(0, len(told.requests) - room)
        self._standing = told.standing or self._standing
        self._num_steps += len(told.steps)
        self._num_lost = told.num_lost
        self._num_refused += told.num_refused

    def take(self, now_s: float, engine: EngineFacts | None) -> Heard:
        """Everything since the last call, steps thinned evenly."""
        heard = Heard(
            now_s=now_s,
            engine=engine,
            standing=self._standing,
            steps=thinned(self._steps, MAX_STEPS_PER_TURN),
            requests=tuple(self._requests),
            num_steps=self._num_steps,
            num_lost=self._num_lost + self._num_dropped,
            num_refused=self._num_refused,
        )
        self._steps, self._requests, self._standing = [], [], None
        self._num_steps = self._num_refused = 0
        return heard


def thinned(steps: list[StepSeen], most: int) -> tuple[StepSeen, ...]:
    """At most so many, evenly spread, the last one among them."""
    if len(steps) <= most:
        return tuple(steps)
    return tuple(steps[(index + 1) * len(steps) // most - 1] for index in range(most))
