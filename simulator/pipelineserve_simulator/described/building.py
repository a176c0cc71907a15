"""From a description to the scenario that it means; whatever cannot be is named by its field."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from pipelineserve.api.faults import explain
from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.targets import Target
from pipelineserve.load.targets import Targets as LoadTargets
from pipelineserve.partition import given_partition
from pipelineserve_simulator.control.controller import controlled_by
from pipelineserve_simulator.control.settings import ControlSettings
from pipelineserve_simulator.described.description import (
    SimulationDescription,
    Targets,
    TimingName,
)
from pipelineserve_simulator.described.faults import faults_of
from pipelineserve_simulator.described.loads import workload_of
from pipelineserve_simulator.described.scheduling import (
    control_of,
    scheduling_faults,
    scheduling_of,
)
from pipelineserve_simulator.hardware.catalogue import (
    load_profile,
    profile_from_text,
    profile_names,
)
from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.hardware.layouts import Layout, even_layout, kv_tokens
from pipelineserve_simulator.pipeline.options import FreeRunning, Interleaved, LockStep, Timing
from pipelineserve_simulator.scenario import Scenario

SUBJECT = "the simulation"
_PartT = TypeVar("_PartT")


@dataclass(frozen=True, slots=True)
class DescribedSimulation:
    """What to run, and what to judge it by.

    Attributes:
        scenario: of the first seed.
        seeds: the run is repeated with each.
        targets: of the whole run; edits change what a controller follows, not what is judged.
        control: of the policy Controlled.
    """

    description: SimulationDescription
    scenario: Scenario
    seeds: tuple[int, ...]
    targets: LoadTargets
    control: ControlSettings | None

    def scenario_of(self, seed: int) -> Scenario:
        """The scenario with this seed."""
        return replace(self.scenario, seed=seed)


def describe(document: Mapping[str, Any], subject: str = SUBJECT) -> SimulationDescription:
    """The description in a mapping of plain values.

    Raises:
        InvalidInputError: with every fault and its field's path; `subject` is whose they are.
    """
    try:
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(subject, [Fault("", f"expected plain values: {error}")]) from error
    try:
        return SimulationDescription.model_validate_json(text)
    except ValidationError as error:
        faults = explain(error, SimulationDescription, ignored="").faults
        raise InvalidInputError(subject, faults) from error


def build(description: SimulationDescription, subject: str = SUBJECT) -> DescribedSimulation:
    """The simulation that a description means; files that it names are read.

    Raises:
        InvalidInputError: with every fault and its field's path.
    """
    return _Builder(description, subject).build()


class _Builder:
    def __init__(self, description: SimulationDescription, subject: str) -> None:
        self._given = description
        self._subject = subject
        self._faults: list[Fault] = []

    def build(self) -> DescribedSimulation:
        given = self._given
        profile = self._part(lambda: read_profile(given.profile))
        workload = self._part(lambda: workload_of(given))
        faults, wrong = faults_of(given.faults, num_stages=given.stages, policy=given.policy)
        self._faults += [*wrong, *scheduling_faults(given), *_timing_faults(given)]
        layout = None
        if profile is not None:
            layout = self._part(lambda: _layout(given, profile))
        if self._faults or profile is None or layout is None or workload is None:
            raise InvalidInputError(self._subject, self._faults)
        control = control_of(given)
        scenario = Scenario(
            profile=profile,
            layout=layout,
            workload=workload,
            make_scheduler=scheduling_of(given, profile),
            timing=_timing(given),
            num_slots=given.slots,
            seed=given.seeds[0],
            has_noise=given.noise,
            faults=faults,
            make_control=None if control is None else controlled_by(control),
            max_chunk_tokens=max(2048, given.chunks.max_tokens),
        )
        return DescribedSimulation(given, scenario, given.seeds, _judged(given.targets), control)

    def _part(self, make: Callable[[], _PartT]) -> _PartT | None:
        """What `make` gives; its faults become this description's."""
        try:
            return make()
        except InvalidInputError as error:
            self._faults += [
                replace(fault, field=_FIELDS.get(fault.field.partition("[")[0], fault.field))
                for fault in error.faults
            ]
            return None


# From the resource's names, by which a layout is refused, to the description's.
_FIELDS = {"layersPerStage": "layers_per_stage", "tensorParallel": "tensor_parallel"}


def read_profile(name: str) -> HardwareProfile:
    """A profile by its name, or of a file.

    Raises:
        InvalidInputError: there is neither, or the file is no profile; the field is `profile`.
    """
    if name in profile_names():
        return load_profile(name)
    path = Path(name)
    if not path.is_file():
        known = ", ".join(profile_names())
        raise _no_profile(f'expected a file, or one of {known}, got "{name}"')
    try:
        return profile_from_text(path.read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        raise _no_profile(f"{name} cannot be read: {error}") from error
    except InvalidInputError as error:
        raise _no_profile(*(f"{name}: {fault}" for fault in error.faults)) from error


def _no_profile(*problems: str) -> InvalidInputError:
    return InvalidInputError(SUBJECT, [Fault("profile", problem) for problem in problems])


def _layout(given: SimulationDescription, profile: HardwareProfile) -> Layout:
    if given.layers_per_stage is None:
        layout = even_layout(profile.model, given.stages, given.tensor_parallel)
    else:
        partition = given_partition(given.layers_per_stage, profile.model.num_layers)
        layout = Layout(partition, given.tensor_parallel)
    kv_tokens(profile, layout)  # refuses what has no room for any
    return layout


def _timing(given: SimulationDescription) -> Timing:
    match given.timing:
        case TimingName.CONTINUOUS | TimingName.FILL_DRAIN:
            return FreeRunning()
        case TimingName.LOCK_STEP:
            return LockStep()
        case TimingName.INTERLEAVED:
            return Interleaved(_num_workers(given))


def _num_workers(given: SimulationDescription) -> int:
    return given.workers or max(1, given.stages // 2)


def _timing_faults(given: SimulationDescription) -> list[Fault]:
    faults = []
    stages, is_interleaved = given.stages, given.timing is TimingName.INTERLEAVED
    if given.timing is TimingName.LOCK_STEP and given.slots not in (None, stages):
        text = f"expected {stages}, one for each stage, with LockStep, got {given.slots}"
        faults.append(Fault("slots", text))
    if given.workers is not None and not is_interleaved:
        text = f"got {given.workers}, expected none: only Interleaved shares workers among stages"
        faults.append(Fault("workers", text))
    if is_interleaved and stages % _num_workers(given):
        text = f"expected a divisor of {stages}, the number of stages, got {_num_workers(given)}"
        faults.append(Fault("workers", text))
    layers = given.layers_per_stage
    if layers is not None and len(layers) != stages:
        text = f"expected {stages} entries, one for each stage, got {len(layers)}"
        faults.append(Fault("layers_per_stage", text))
    return faults


def _judged(targets: Targets) -> LoadTargets:
    ttft, tpot, e2e = (
        None if value is None else Target(targets.percentile, value / 1000.0)
        for value in (targets.ttft_ms, targets.tpot_ms, targets.e2e_ms)
    )
    return LoadTargets(ttft, tpot, e2e)
