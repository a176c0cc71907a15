"""The workload of a described simulation: one by its name, or the rows of a trace."""

from dataclasses import replace
from pathlib import Path

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.arrivals import Poisson, Timestamps
from pipelineserve.load.row_files import RowFile, read_rows
from pipelineserve.load.selection import RowChoice
from pipelineserve_simulator.described.description import SimulationDescription
from pipelineserve_simulator.workloads.arriving import RandomArrivals
from pipelineserve_simulator.workloads.registry import WorkloadName, WorkloadOptions, make_workload
from pipelineserve_simulator.workloads.replay import RowWorkload
from pipelineserve_simulator.workloads.requests import Workload

_SUBJECT = "the workload"
# From the names of the workload's options to the description's.
_FIELDS = {"file": "trace_file", "num_requests": "requests"}


def workload_of(given: SimulationDescription) -> Workload:
    """What is asked.

    Raises:
        InvalidInputError: it cannot be made; fields are the description's.
    """
    file = None if given.trace_file is None else _read(Path(given.trace_file))
    if given.workload is None:
        return _of_rows(given, file)
    names = [name.value for name in WorkloadName]
    if given.workload not in names:
        text = f'expected one of {", ".join(names)}, got "{given.workload}"'
        raise InvalidInputError(_SUBJECT, [Fault("workload", text)])
    options = WorkloadOptions(given.rate_per_s, given.rate_scale, given.requests, file)
    try:
        return make_workload(WorkloadName(given.workload), options)
    except InvalidInputError as error:
        faults = [replace(f, field=_FIELDS.get(f.field, f.field)) for f in error.faults]
        raise InvalidInputError(_SUBJECT, faults) from error


def _read(path: Path) -> RowFile:
    try:
        return read_rows(path)
    except InvalidInputError as error:
        faults = [Fault("trace_file", f"{path}: {fault}") for fault in error.faults]
        raise InvalidInputError(_SUBJECT, faults) from error


def _of_rows(given: SimulationDescription, file: RowFile | None) -> Workload:
    """A file's rows, at their own times or at a rate."""
    if file is None:
        text = "required without trace_file, but missing; for example azure-4000"
        raise InvalidInputError(_SUBJECT, [Fault("workload", text)])
    if given.rate_per_s is not None and given.rate_scale is not None:
        text = "got one beside rate_per_s, expected one of both"
        raise InvalidInputError(_SUBJECT, [Fault("rate_scale", text)])
    arrivals: RandomArrivals | Timestamps = Timestamps(given.rate_scale or 1.0)
    if given.rate_per_s is not None:
        arrivals = RandomArrivals(Poisson(given.rate_per_s))
    num_requests = given.requests or len(file.rows)
    try:
        return RowWorkload(file, RowChoice(), arrivals, num_requests)
    except InvalidInputError as error:
        faults = [Fault("trace_file", str(fault)) for fault in error.faults]
        raise InvalidInputError(_SUBJECT, faults) from error
