"""What an experiment asks for: figures of trials, and capacities; what is missing is told at once.

An experiment is a function of figures. It is called until it has all of them: each time it either
concludes or says, by an error, which trials it lacks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pipelineserve_simulator.measures.capacity import (
    Capacity,
    CapacitySearch,
    Point,
    search_capacity,
)
from pipelineserve_simulator.measures.criteria import p90_criteria, with_tail
from pipelineserve_simulator.reproduce.effort import Effort
from pipelineserve_simulator.reproduce.figures import PAPER_TARGETS, TargetPair, TrialFigures
from pipelineserve_simulator.reproduce.systems import ModelName, System
from pipelineserve_simulator.reproduce.traces import Source
from pipelineserve_simulator.reproduce.trials import Load, Trial, make_trial

QuestionT = TypeVar("QuestionT")
AnswerT = TypeVar("AnswerT")


class MissingTrialsError(Exception):
    """These trials must be run first."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        super().__init__(f"{len(trials)} trials must be run first")
        self.trials = tuple(dict.fromkeys(trials))


@dataclass(frozen=True, slots=True)
class CapacityQuestion:
    """Which capacity is looked for, and between which rates.

    Attributes:
        has_tail: whether the P99 of TTFT is bounded as well.
        tolerance: times the effort's.
        most_seeds: of the effort's, where runs are long.
    """

    system: System
    load: Load
    low_per_s: float
    high_per_s: float
    targets: TargetPair = PAPER_TARGETS
    has_tail: bool = False
    model: ModelName = ModelName.QWEN_32B
    tolerance: float = 1.0
    most_seeds: int = 5


class Study:
    """Figures for one effort.

    Args:
        effort: how much.
        find: figures of a trial, if there are any.
        sources: where Azure's requests come from; more than one if a trace was given.
    """

    def __init__(
        self,
        effort: Effort,
        find: Callable[[Trial], TrialFigures | None],
        sources: tuple[Source, ...] = (Source.FITTED,),
    ) -> None:
        self.effort = effort
        self.sources = sources
        self._find = find

    def figures(self, trials: Sequence[Trial]) -> tuple[TrialFigures, ...]:
        """Of each trial.

        Raises:
            MissingTrialsError: some have not been run.
        """
        found = [(trial, self._find(trial)) for trial in trials]
        missing = [trial for trial, figures in found if figures is None]
        if missing:
            raise MissingTrialsError(missing)
        return tuple(figures for _, figures in found if figures is not None)

    def runs(
        self,
        system: System,
        load: Load,
        targets: TargetPair = PAPER_TARGETS,
        model: ModelName = ModelName.QWEN_32B,
        seeds: tuple[int, ...] | None = None,
    ) -> tuple[TrialFigures, ...]:
        """One for each seed; the effort's, unless others are given."""
        chosen = self.effort.seeds if seeds is None else seeds
        return self.figures([make_trial(model, system, load, seed, targets) for seed in chosen])

    def capacity(self, question: CapacityQuestion) -> Capacity:
        """By bisection over kept figures, as `find_capacity` does it.

        Raises:
            MissingTrialsError: the next rates have not been run.
        """
        criteria = p90_criteria(question.targets.targets)
        if question.has_tail:
            criteria = with_tail(criteria)

        def judge(points: Sequence[Point]) -> list[tuple[float, ...]]:
            trials = [
                make_trial(
                    question.model,
                    question.system,
                    question.load.at(rate_per_s),
                    seed,
                    question.targets,
                )
                for rate_per_s, seed in points
            ]
            return [
                tuple(figures.judged(criterion) for criterion in criteria)
                for figures in self.figures(trials)
            ]

        search = CapacitySearch(
            low_per_s=question.low_per_s,
            high_per_s=question.high_per_s,
            tolerance_ratio=question.tolerance * self.effort.capacity_tolerance_ratio,
            seeds=self.effort.seeds[: question.most_seeds],
            probe_ratios=(),
        )
        return search_capacity(judge, criteria, search)

    def capacities(self, questions: Sequence[CapacityQuestion]) -> list[Capacity]:
        """All of them, whose trials are then run at the same time."""
        return gather(self.capacity, questions)


def gather(ask: Callable[[QuestionT], AnswerT], questions: Sequence[QuestionT]) -> list[AnswerT]:
    """All answers; what they lack is told together, so that it is run together.

    Raises:
        MissingTrialsError: some lack trials.
    """
    answers: list[AnswerT] = []
    missing: list[Trial] = []
    for question in questions:
        try:
            answers.append(ask(question))
        except MissingTrialsError as error:
            missing.extend(error.trials)
    if missing:
        raise MissingTrialsError(missing)
    return answers
