"""What was measured of each composition, as times without a fit."""

from dataclasses import dataclass, field
from statistics import median

from pipelineserve_cli.profiles.compositions import Composition


@dataclass(slots=True)
class Timings:
    """Samples in seconds.

    Attributes:
        together_s: by composition, for each stage: steps while every stage computes.
        alone_s: the same while only that stage computes.
        hops_s: by tokens: end on one stage to start on the next.
        gaps_s: by requests: end on the last stage to start on the first of the next micro-batch,
            with the server's work in between.
    """

    num_stages: int
    together_s: dict[Composition, list[list[float]]] = field(default_factory=dict)
    alone_s: dict[Composition, list[list[float]]] = field(default_factory=dict)
    hops_s: dict[int, list[float]] = field(default_factory=dict)
    gaps_s: dict[int, list[float]] = field(default_factory=dict)

    def note(
        self, composition: Composition, stage_index: int, step_s: float, *, is_alone: bool
    ) -> None:
        """One step."""
        table = self.alone_s if is_alone else self.together_s
        stages = table.setdefault(composition, [[] for _ in range(self.num_stages)])
        stages[stage_index].append(step_s)

    def step_s(self, composition: Composition, stage_index: int) -> float:
        """The median while every stage computes."""
        return median(self.together_s[composition][stage_index])

    @property
    def sharing_ratio(self) -> float:
        """How much longer steps take together than alone, the median over all that was timed."""
        return median(
            median(together_s) / median(alone_s)
            for composition, stages in self.together_s.items()
            for together_s, alone_s in zip(stages, self.alone_s[composition], strict=True)
        )
