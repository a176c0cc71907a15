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
        loading_silence_s: the same for one that still loads: its libraries may keep the interpreter
            to themselves for seconds.
        stall_s: work without any step ending for this long is a stall; above the longest step.
        start_s: a stage whose process runs and that is not heard for the first time within this
            has failed to start; it is heard before it loads anything heavy.
    """

    silence_s: float = 5.0
    loading_silence_s: float = 30.0
    stall_s: float = 300.0
    start_s: float = 30.0


class Watchdog:
    """Told of every sign of life, in the time of the server's clock."""

    def __init__(self, num_stages: int, patience: Patience) -> None:
        self._patience = patience
        self._heard_at_s: list[float | None] = [None] * num_stages
        self._is_ready = [False] * num_stages
        self._ended_sequences: list[int | None] = [None] * num_stages
        self._started_at_s: list[float | None] = [None] * num_stages
        self._num_in_flight = 0
        self._progress_at_s = 0.0

    def start(self, stage_index: int, now_s: float) -> None:
        """The stage's process is known to run; only the first time that this is told counts."""
        if self._started_at_s[stage_index] is None:
            self._started_at_s[stage_index] = now_s

    def hear(self, stage_index: int, now_s: float) -> None:
        """A message of this stage was received."""
        self._heard_at_s[stage_index] = now_s

    def ready(self, stage_index: int) -> None:
        """The stage has loaded its weights."""
        self._is_ready[stage_index] = True

    def start_step(self, now_s: float) -> None:
        """A micro-batch was sent."""
        if self._num_in_flight == 0:
            self._progress_at_s = now_s
        self._num_in_flight += 1

    def end_step(self, stage_index: int, sequence: int, now_s: float) -> None:
        """A stage has run a micro-batch."""
        self._progress_at_s = now_s
        self._ended_sequences[stage_index] = sequence
        self._num_in_flight -= stage_index == len(self._heard_at_s) - 1

    def fault(self, now_s: float) -> str | None:
        """What is wrong, or None; ask after all waiting messages were taken in."""
        for stage_index, heard_at_s in enumerate(self._heard_at_s):
            if heard_at_s is not None and now_s - heard_at_s > self._silence_s(stage_index):
                return f"stage {stage_index} was silent for {now_s - heard_at_s:.1f} s"
            if heard_at_s is None and self._is_start_overdue(stage_index, now_s):
                return f"stage {stage_index} gave no sign of life since it was started"
        waited_s = now_s - self._progress_at_s
        if self._num_in_flight > 0 and waited_s > self._patience.stall_s:
            return f"no stage ended a step for {waited_s:.1f} s although there was work"
        return None

    def state(self, now_s: float) -> str:
        """Where each stage stands, for the log."""
        stages = [
            f"stage {stage_index}: {_heard(heard_at_s, now_s)}, {_ended(sequence)}"
            for stage_index, (heard_at_s, sequence) in enumerate(
                zip(self._heard_at_s, self._ended_sequences, strict=True)
            )
        ]
        return "; ".join([f"{self._num_in_flight} micro-batches in flight", *stages])

    def _silence_s(self, stage_index: int) -> float:
        patience = self._patience
        return patience.silence_s if self._is_ready[stage_index] else patience.loading_silence_s

    def _is_start_overdue(self, stage_index: int, now_s: float) -> bool:
        started_at_s = self._started_at_s[stage_index]
        return started_at_s is not None and now_s - started_at_s > self._patience.start_s


def _heard(heard_at_s: float | None, now_s: float) -> str:
    return "never heard" if heard_at_s is None else f"heard {now_s - heard_at_s:.1f} s ago"


def _ended(sequence: int | None) -> str:
    return "ended no step" if sequence is None else f"last ended step {sequence}"
