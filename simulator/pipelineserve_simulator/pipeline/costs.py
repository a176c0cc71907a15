"""What the executor asks of a cost model."""

from typing import Protocol

from pipelineserve_simulator.pipeline.loads import StepLoad


class PipelineCosts(Protocol):
    """Times of one pipeline without chance; all in seconds."""

    @property
    def num_stages(self) -> int:
        """Stages that each micro-batch passes, virtual ones counted each."""
        ...

    @property
    def sharing_ratio(self) -> float:
        """How much longer a step takes while all stages compute than alone; at least 1.

        All times here are those of all computing at once. It is above 1 where stages share cores
        or memory.
        """
        ...

    def stage_times_s(self, load: StepLoad) -> tuple[float, ...]:
        """Computation of one micro-batch on each stage, above 0."""
        ...

    def transfer_s(self, num_tokens: int) -> float:
        """From the end on one stage until the next can begin, were it idle."""
        ...

    def host_s(self, num_requests: int) -> float:
        """What the leader does before it can send a micro-batch of so many requests."""
        ...

    def return_s(self) -> float:
        """From the end on the last stage until the leader has the tokens."""
        ...


class Noise(Protocol):
    """Chance in the times of a micro-batch; asked once for each, in their order."""

    def factor(self) -> float:
        """By how much the next micro-batch takes longer than the costs say; above 0."""
        ...

    def stall(self, num_stages: int) -> tuple[int, float]:
        """The stage on which it stalls, and seconds; 0 for nearly all."""
        ...


class NoNoise:
    """Times are exactly the costs."""

    def factor(self) -> float:
        """Always 1."""
        return 1.0

    def stall(self, num_stages: int) -> tuple[int, float]:
        """Never."""
        del num_stages
        return 0, 0.0
