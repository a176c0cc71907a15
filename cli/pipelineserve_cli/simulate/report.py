"""What a simulation comes to: its conditions, each seed's figures, and all seeds together."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipelineserve.load.targets import Targets
from pipelineserve_simulator.described.building import DescribedSimulation
from pipelineserve_simulator.described.running import SeedRun
from pipelineserve_simulator.hardware.layouts import kv_tokens
from pipelineserve_simulator.measures.merging import MergedFigures, merge

SCHEMA = "pserve-simulate/1"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What was simulated, all of it and in words.

    Attributes:
        description: every field, defaults too; as a file it gives the same figures.
    """

    description: dict[str, Any]
    profile: str
    workload: str
    layers_per_stage: tuple[int, ...]
    num_devices: int
    num_slots: int
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """The report.

    Attributes:
        runs: by seed.
        whole, steady: of all seeds; `steady` is None if a run is too short to have one.
    """

    conditions: Conditions
    targets: Targets
    runs: tuple[SeedRun, ...]
    whole: MergedFigures
    steady: MergedFigures | None

    def as_json(self) -> dict[str, Any]:
        """As it is written; seconds, tokens and ratios as the names of fields say."""
        return {"schema": SCHEMA, **asdict(self)}


def report_of(simulation: DescribedSimulation, runs: Sequence[SeedRun]) -> SimulationReport:
    """The report of all seeds."""
    scenario = simulation.scenario
    steady = [run.steady for run in runs if run.steady is not None]
    return SimulationReport(
        conditions=Conditions(
            description=simulation.description.model_dump(mode="json"),
            profile=scenario.profile.name,
            workload=scenario.workload.description,
            layers_per_stage=scenario.layout.partition.layers_per_stage,
            num_devices=scenario.layout.num_devices,
            num_slots=scenario.sizes.num_slots,
            kv_tokens=kv_tokens(scenario.profile, scenario.layout),
        ),
        targets=simulation.targets,
        runs=tuple(runs),
        whole=merge([run.whole for run in runs]),
        steady=merge(steady) if len(steady) == len(runs) else None,
    )
