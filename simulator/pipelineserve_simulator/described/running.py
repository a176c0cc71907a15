"""Runs a described simulation, seed by seed, and keeps its figures."""

from dataclasses import dataclass, replace

from pipelineserve.policy.predictive import Predictive
from pipelineserve_simulator.control.controller import controlled_by
from pipelineserve_simulator.control.settings import (
    ControlEvent,
    LeaseEnded,
    PolicyAdopted,
    TurnTaken,
)
from pipelineserve_simulator.described.building import DescribedSimulation
from pipelineserve_simulator.measures.figures import (
    RunFigures,
    measure,
    steady_window_of,
    whole_window,
)
from pipelineserve_simulator.scenario import simulate


@dataclass(frozen=True, slots=True)
class ControlFigures:
    """What a controller did in a run.

    Attributes:
        predictive_from_s: when the first predicted chunk came into force; None: never.
        lapses_s: when leases ended.
        latest_reason: of its last turn.
    """

    num_turns: int
    num_policies: int
    predictive_from_s: float | None
    lapses_s: tuple[float, ...]
    latest_reason: str


@dataclass(frozen=True, slots=True)
class SeedRun:
    """One run.

    Attributes:
        steady: of the steady window; None for runs too short to have one.
        control: of the policy Controlled.
    """

    seed: int
    whole: RunFigures
    steady: RunFigures | None
    control: ControlFigures | None


def run_seed(simulation: DescribedSimulation, seed: int) -> SeedRun:
    """Run it with this seed; the same one gives the same figures."""
    scenario, tally = simulation.scenario_of(seed), _ControlTally()
    if simulation.control is not None:
        watched = replace(simulation.control, observe=tally.note)
        scenario = replace(scenario, make_control=controlled_by(watched))
    outcome = simulate(scenario)
    steady = steady_window_of(outcome)
    return SeedRun(
        seed=seed,
        whole=measure(outcome, simulation.targets, whole_window(outcome)),
        steady=None if steady is None else measure(outcome, simulation.targets, steady),
        control=None if simulation.control is None else tally.figures(),
    )


class _ControlTally:
    """Counts what a controller does, and keeps no more."""

    def __init__(self) -> None:
        self._num_turns = self._num_policies = 0
        self._predictive_from_s: float | None = None
        self._lapses_s: list[float] = []
        self._latest_reason = ""

    def note(self, event: ControlEvent) -> None:
        match event:
            case TurnTaken(turn=turn):
                self._num_turns += 1
                self._latest_reason = turn.reason.value
            case PolicyAdopted(now_s, leased):
                self._num_policies += 1
                is_predictive = isinstance(leased.policy.chunking, Predictive)
                if is_predictive and self._predictive_from_s is None:
                    self._predictive_from_s = now_s
            case LeaseEnded(now_s):
                self._lapses_s.append(now_s)

    def figures(self) -> ControlFigures:
        return ControlFigures(
            self._num_turns,
            self._num_policies,
            self._predictive_from_s,
            tuple(self._lapses_s),
            self._latest_reason,
        )
