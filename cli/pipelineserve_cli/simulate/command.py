"""`pserve simulate`: reads what to simulate, runs it seed by seed, and prints the figures."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from pipelineserve.api.documents import read_documents
from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_cli.simulate.options import FIELDS, flag_of, simulate_options, with_flags
from pipelineserve_cli.simulate.report import SimulationReport, report_of
from pipelineserve_cli.simulate.tables import report_tables
from pipelineserve_simulator.described.building import (
    SUBJECT,
    DescribedSimulation,
    build,
    describe,
)
from pipelineserve_simulator.described.running import run_seed


@click.command()
@simulate_options
def simulate(*, filename: Path | None, as_json: bool, **given: Any) -> None:
    """Run one scenario in the digital twin, on virtual time, and report its latencies.

    What is not said has the defaults below; flags go before what a file says. The same description
    gives the same figures.
    """
    document = {} if filename is None else _read_document(filename)
    simulation = _simulation(document, given, filename)
    report = _run(simulation, Console(stderr=True))
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(), indent=2) + "\n")
    else:
        Console().print(report_tables(report), highlight=False)


def _simulation(
    document: Mapping[str, Any], given: Mapping[str, Any], filename: Path | None
) -> DescribedSimulation:
    """What is to be run; faults name the flag, or the field of the file."""
    subject = SUBJECT if filename is None else str(filename)
    set_by_flag = {FIELDS[name] for name, value in given.items() if value not in (None, ())}
    try:
        return build(describe(with_flags(document, given), subject), subject)
    except InvalidInputError as error:
        faults = [
            _named(fault, set_by_flag, has_file=filename is not None) for fault in error.faults
        ]
        raise InvalidInputError(subject, faults) from error


def _named(fault: Fault, set_by_flag: set[tuple[str, ...]], *, has_file: bool) -> Fault:
    """By its flag, if that is what set it or could have."""
    flag = flag_of(fault.field)
    if flag is None:
        return fault
    is_of_flag = FIELDS[flag.removeprefix("--").replace("-", "_")] in set_by_flag
    return replace(fault, field=flag) if is_of_flag or not has_file else fault


def _read_document(path: Path) -> Mapping[str, Any]:
    try:
        read = read_documents(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(str(path), [Fault("", f"cannot be read: {error}")]) from error
    faults = [*read.faults, *(fault for found in read.documents for fault in found.faults)]
    if not faults and len(read.documents) != 1:
        faults = [Fault("", f"expected one document, got {len(read.documents)}")]
    value = None if faults else read.documents[0].value
    if not faults and not isinstance(value, dict):
        faults = [Fault("", "expected a mapping of fields, as profile, workload and policy")]
    if faults or not isinstance(value, dict):
        raise InvalidInputError(str(path), faults)
    return value


def _run(simulation: DescribedSimulation, console: Console) -> SimulationReport:
    runs, seeds = [], simulation.seeds
    for index, seed in enumerate(seeds):
        with console.status(f"seed {seed}, {index + 1} of {len(seeds)}"):
            runs.append(run_seed(simulation, seed))
    return report_of(simulation, runs)
