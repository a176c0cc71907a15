"""`pserve plan`: the question, the search with its progress, and the answer."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from pipelineserve.errors import Fault, InvalidInputError, PipelineServeError
from pipelineserve_cli.load.tables import print_on
from pipelineserve_cli.plan.export import plan_as_json
from pipelineserve_cli.plan.manifest import manifest_of
from pipelineserve_cli.plan.options import OutputForm, PlanOptions, plan_options
from pipelineserve_cli.plan.questions import question_of
from pipelineserve_cli.plan.tables import plan_tables
from pipelineserve_simulator.planning.search import Effort, Plan, Progress, Question, make_plan


class NoLayoutError(PipelineServeError):
    """No layout meets the targets; the message says what to change."""


@click.command()
@plan_options
def plan(**given: Any) -> None:
    """Find the layout that serves a load on the fewest GPUs, and say why the others do not.

    Every way to cut the model into stages (PP) and shards (TP) is checked: does it fit into memory,
    does it meet the targets by formula. The best few are simulated and ranked by goodput per GPU.
    The status is 1 if none meets the targets.
    """
    options = PlanOptions(**given)
    if options.as_json and options.output is not None:
        text = "got --json as well, expected one of them"
        raise InvalidInputError("the question", [Fault("--output", text)])
    question = question_of(options)
    answer = _search(question, options)
    _write(answer, options)
    if answer.best is None:
        raise NoLayoutError(
            "no layout meets the targets at this rate; allow more GPUs, a lower rate or longer "
            "latencies"
        )


def _search(question: Question, options: PlanOptions) -> Plan:
    ends_at_s = time.monotonic() + options.budget_s
    effort = Effort(options.layouts, tuple(range(1, options.seeds + 1)))
    with _shown_progress(Console(stderr=True)) as tell:
        return make_plan(question, effort, lambda: time.monotonic() < ends_at_s, tell)


@contextmanager
def _shown_progress(console: Console) -> Iterator[Any]:
    """A bar on a terminal until the block ends; elsewhere nothing."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bars = Bars(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bars:
        task = bars.add_task("laying out", total=None)

        def tell(progress: Progress) -> None:
            deployment = progress.trial.deployment
            text = (
                f"simulating {deployment.num_replicas} x {deployment.placed.shape}, "
                f"{deployment.policy.value}, seed {progress.trial.seed}"
            )
            bars.update(
                task, description=text, completed=progress.num_done, total=progress.num_trials
            )

        yield tell


def _write(answer: Plan, options: PlanOptions) -> None:
    if options.output is OutputForm.YAML:
        if answer.best is not None:
            sys.stdout.write(manifest_of(answer.question, answer.best))
    elif options.as_json:
        content = plan_as_json(answer, with_formulas=options.explain)
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
    else:
        print_on(Console(), plan_tables(answer, with_formulas=options.explain))
