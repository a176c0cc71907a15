"""One micro-batch on its way through the stages."""

from dataclasses import dataclass, field

from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve_simulator.kernel.ticks import TICKS_PER_S, to_ticks
from pipelineserve_simulator.measures.runs import StepOutcome
from pipelineserve_simulator.pipeline.loads import StepLoad


@dataclass(slots=True, eq=False)
class Passage:
    """Times in ticks; lists are by stage and grow as stages begin and end.

    Attributes:
        composed_ticks: when the scheduler composed it.
        work_s: computation on each stage without chance.
        noise_factor: what they take more than that.
        stall: on which stage it stalls, and seconds.
        is_lost: whether it never comes back.
        lock_step_ticks: see `StepOutcome.lock_step_s`.
    """

    micro_batch: MicroBatch
    load: StepLoad
    composed_ticks: int
    work_s: tuple[float, ...]
    noise_factor: float = 1.0
    stall: tuple[int, float] = (0, 0.0)
    is_lost: bool = False
    starts_ticks: list[int] = field(default_factory=list)
    ends_ticks: list[int] = field(default_factory=list)
    bubbles_ticks: list[int] = field(default_factory=list)
    lock_step_ticks: int | None = None

    def work_ticks(self, stage_index: int, noise_factor: float) -> int:
        """Computation on one stage at full speed, at least one tick."""
        work_s = self.work_s[stage_index] * noise_factor
        if stage_index == self.stall[0]:
            work_s += self.stall[1]
        return max(1, to_ticks(work_s))

    def note(self, idle_since_ticks: int, start_ticks: int, end_ticks: int) -> None:
        """The next stage computes it from then to then, after an idle time."""
        self.bubbles_ticks.append(start_ticks - idle_since_ticks)
        self.starts_ticks.append(start_ticks)
        self.ends_ticks.append(end_ticks)

    def outcome(self) -> StepOutcome:
        """Its figures, once it has passed all stages."""
        spans = zip(self.starts_ticks, self.ends_ticks, strict=True)
        lock_step_ticks = self.lock_step_ticks
        return StepOutcome(
            start_s=self.starts_ticks[0] / TICKS_PER_S,
            span_s=(self.ends_ticks[-1] - self.starts_ticks[0]) / TICKS_PER_S,
            slot_index=self.micro_batch.slot_index,
            num_tokens=self.load.num_tokens,
            num_decodes=self.load.num_decodes,
            chunk_tokens=self.micro_batch.chunk.chunk_tokens,
            stage_times_s=tuple([(end - start) / TICKS_PER_S for start, end in spans]),
            bubbles_s=tuple([bubble / TICKS_PER_S for bubble in self.bubbles_ticks]),
            lock_step_s=None if lock_step_ticks is None else lock_step_ticks / TICKS_PER_S,
        )
