"""Described faults: each kind with the fields that it has, and no others."""

from collections.abc import Callable, Sequence
from typing import Any

from pipelineserve.errors import Fault as InputFault
from pipelineserve_simulator.described.description import DescribedFault, FaultKind, PolicyName
from pipelineserve_simulator.pipeline.faults import (
    ControllerGone,
    Fault,
    RecordsLost,
    StageLost,
    StageSlowed,
)

_MAKERS: dict[FaultKind, tuple[Callable[..., Fault], tuple[str, ...], tuple[str, ...]]] = {
    # What makes it, the fields that it needs, and those that it may have.
    FaultKind.STAGE_SLOWED: (StageSlowed, ("stage_index", "factor", "start_s", "end_s"), ()),
    FaultKind.STAGE_LOST: (StageLost, ("stage_index", "at_s", "down_s"), ()),
    FaultKind.CONTROLLER_GONE: (ControllerGone, ("start_s", "end_s"), ("keeps_journal",)),
    FaultKind.RECORDS_LOST: (RecordsLost, ("start_s", "end_s"), ()),
}
_OF_CONTROL = (FaultKind.CONTROLLER_GONE, FaultKind.RECORDS_LOST)


def faults_of(
    given: Sequence[DescribedFault], *, num_stages: int, policy: PolicyName
) -> tuple[tuple[Fault, ...], list[InputFault]]:
    """What goes wrong in a run, and what is wrong with the description of it."""
    made: list[Fault] = []
    wrong: list[InputFault] = []
    for index, fault in enumerate(given):
        problems = _problems(fault, num_stages, policy)
        wrong += [InputFault(f"faults[{index}].{name}", text) for name, text in problems]
        if problems:
            continue
        make = _MAKERS[fault.kind][0]
        try:
            made.append(make(**_values(fault)))
        except ValueError as error:
            wrong.append(InputFault(f"faults[{index}]", str(error)))
    return tuple(made), wrong


def _problems(fault: DescribedFault, num_stages: int, policy: PolicyName) -> list[tuple[str, str]]:
    _, needed, allowed = _MAKERS[fault.kind]
    values = _values(fault)
    kind = fault.kind.value
    problems = [
        (name, f"required for {kind}, but missing") for name in needed if name not in values
    ]
    problems += [
        (name, f"{kind} has no such field; it has {', '.join((*needed, *allowed))}")
        for name in values
        if name not in (*needed, *allowed)
    ]
    if fault.stage_index is not None and fault.stage_index >= num_stages:
        text = f"expected below {num_stages}, the number of stages, got {fault.stage_index}"
        problems.append(("stage_index", text))
    if fault.kind in _OF_CONTROL and policy is not PolicyName.CONTROLLED:
        text = f"{kind} needs a controller; expected the policy Controlled, got {policy.value}"
        problems.append(("kind", text))
    return problems


def _values(fault: DescribedFault) -> dict[str, Any]:
    """What was given, without the kind."""
    return fault.model_dump(exclude={"kind"}, exclude_none=True)
