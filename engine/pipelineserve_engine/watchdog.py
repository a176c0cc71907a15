"""When a pipeline counts as failed although no process has ended; pure but for its memory.

A stage sends a heartbeat from a thread of its own, so it is silent only if its whole process
stands still (stopped, swapped out, the machine gone), however long its step takes. A pipeline is
stalled if every stage lives and no step ends although there is work: a deadlock between stages,
for example.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds of the watchdog.

    Attributes:
        silence_s: a stage that was ready and is not heard for this long has failed.
        stall_s: work without any step ending for this long is a stall; above the longest step.
    """

    silence_s: float = 5.0
    stall_s: float = 300.0


class Watchdog:
    """Told of every sign of life, in the time of the server's clock."""

    def __init__(self, num_stages: int, patience: Patience) -> None:
        self._patience = patience
        self._heard_at_s: list[float | None] = [None] * num_stages
        self._num_in_flight = 0
        self._progress_at_s = 0.0

    def hear(self, stage_index: int, now_s: float) -> None:
        """A message of this stage was received."""
        self._heard_at_s[stage_index] = now_s

    def start_step(self, now_s: float) -> None:
        """A micro-batch was sent."""
        if self._num_in_flight == 0:
            self._progress_at_s = now_s
        self._num_in_flight += 1

    def end_step(self, now_s: float, *, is_last_stage: bool) -> None:
        """A stage has run a micro-batch."""
        self._progress_at_s = now_s
        self._num_in_flight -= is_last_stage

    def fault(self, now_s: float) -> str | None:
        """What is wrong, or None; ask after all waiting messages were taken in."""
        for stage_index, heard_at_s in enumerate(self._heard_at_s):
            if heard_at_s is not None and now_s - heard_at_s > self._patience.silence_s:
                return f"stage {stage_index} was silent for {now_s - heard_at_s:.1f} s"
        waited_s = now_s - self._progress_at_s
        if self._num_in_flight > 0 and waited_s > self._patience.stall_s:
            return f"no stage ended a step for {waited_s:.1f} s although there was work"
        return None
