"""`pserve reproduce`: the options, and what follows from them."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_cli.reproduce.progress import shown_progress
from pipelineserve_cli.reproduce.tables import acceptance_table
from pipelineserve_simulator.reproduce.effort import FULL, QUICK
from pipelineserve_simulator.reproduce.experiments import EXPERIMENTS, Experiment
from pipelineserve_simulator.reproduce.findings import RowResult
from pipelineserve_simulator.reproduce.fingerprint import code_fingerprint
from pipelineserve_simulator.reproduce.forecast import forecast_trials
from pipelineserve_simulator.reproduce.report.acceptance import (
    ReportFacts,
    acceptance_as_json,
)
from pipelineserve_simulator.reproduce.runner import Run, open_pool
from pipelineserve_simulator.reproduce.store import FigureStore
from pipelineserve_simulator.reproduce.study import Study
from pipelineserve_simulator.reproduce.traces import Source, TraceFile, find_trace


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """The options, as the command line gives them."""

    out: Path
    quick: bool
    only: tuple[str, ...]
    traces: Path | None
    jobs: int | None
    as_json: bool


@click.command()
@click.option(
    "--out",
    default=Path("reproduced"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder of results and report; what is there already is not computed again.",
)
@click.option("--quick", is_flag=True, help="Fewer seeds and requests: a first look.")
@click.option("--only", multiple=True, metavar="ROW", help="This row of the table; repeatable.")
@click.option(
    "--traces",
    type=click.Path(path_type=Path),
    help="Folder with Azure's public trace, to run on its rows beside the fits to them.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: one for each core]")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON on standard output.")
def reproduce(**given: Any) -> None:
    """Run the published experiments on the digital twin and judge every number.

    Writes OUT/report.html and OUT/acceptance.json. A run that was ended goes on where it was if it
    is started again. Lines that miss their tolerance are shown as such and are no failure of the
    command.
    """
    options = ReproduceOptions(**given)
    experiments = _chosen(options.only)
    trace = None if options.traces is None else find_trace(options.traces)
    store = FigureStore(options.out, trace)
    effort = QUICK if options.quick else FULL
    facts = ReportFacts(effort, code_fingerprint(), "" if trace is None else trace.path.name)
    page_of = _drawing()
    results = _run(options, experiments, store, trace, facts)
    page = options.out / "report.html"
    page.write_text(page_of(results, facts), encoding="utf-8")
    table = json.dumps(acceptance_as_json(results, facts), indent=1) + "\n"
    (options.out / "acceptance.json").write_text(table, encoding="utf-8")
    if options.as_json:
        sys.stdout.write(table)
    else:
        console = Console()
        console.print(acceptance_table(results), highlight=False)
        console.print(f"report: {page}", highlight=False, soft_wrap=True)


def _chosen(only: Sequence[str]) -> tuple[Experiment, ...]:
    known = [experiment.row for experiment in EXPERIMENTS]
    unknown = [row for row in only if row not in known]
    if unknown:
        text = f'got "{", ".join(unknown)}", expected rows of {", ".join(known)}'
        raise InvalidInputError("the choice of rows", [Fault("--only", text)])
    return tuple(experiment for experiment in EXPERIMENTS if not only or experiment.row in only)


def _drawing() -> Any:
    """The report's writer; what it draws with takes long to load, and not everybody has it."""
    try:
        from pipelineserve_simulator.reproduce.report.page import report_page  # noqa: PLC0415
    except ImportError as error:
        text = f'is missing; install "pipelineserve[simulator]" ({error})'
        raise InvalidInputError("the report", [Fault(error.name or "", text)]) from None
    return report_page


def _run(
    options: ReproduceOptions,
    experiments: Sequence[Experiment],
    store: FigureStore,
    trace: TraceFile | None,
    facts: ReportFacts,
) -> tuple[RowResult, ...]:
    sources = (Source.FITTED,) if trace is None else (Source.FITTED, Source.ROWS)
    num_expected = forecast_trials(experiments, facts.effort, sources, store.find)
    num_jobs = options.jobs or os.cpu_count() or 1
    console = Console(stderr=True)
    study = Study(facts.effort, store.find, sources)
    try:
        with (
            shown_progress(console, num_expected, len(experiments)) as progress,
            open_pool(num_jobs, trace) as pool,
        ):
            return Run(study, store, pool, progress).conclude(experiments)
    except KeyboardInterrupt:
        text = f"what has ended is kept in {options.out}; the same command goes on from there"
        console.print(text, highlight=False, soft_wrap=True)
        raise
