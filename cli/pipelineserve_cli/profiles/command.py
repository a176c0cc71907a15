"""`pserve profile`: what one model's steps cost on this machine."""

import os
import platform
from pathlib import Path

import click
import yaml
from rich.console import Console

from pipelineserve.errors import Fault, InvalidInputError, ModelUnavailableError
from pipelineserve_cli.option_types import (
    AT_LEAST_ONE,
    NEW_FILE,
    chunk_tokens_option,
    json_option,
)
from pipelineserve_cli.profiles.compositions import Extent
from pipelineserve_cli.profiles.fitting import Measured, fit_profile
from pipelineserve_cli.profiles.task import Task
from pipelineserve_cli.profiles.words import comment_of, summary_of
from pipelineserve_cli.terminal import ModelProgress
from pipelineserve_simulator.hardware.description import HardwareProfile


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("model", metavar="MODEL")
@click.argument("flags", metavar="[-- ENGINE FLAGS]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-o",
    "--output",
    required=True,
    type=NEW_FILE,
    help="Profile to write, YAML.",
)
@chunk_tokens_option("The largest micro-batch that is timed.")
@click.option(
    "--context-tokens",
    default=1024,
    show_default=True,
    type=click.IntRange(min=256),
    help="The longest context that is timed.",
)
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    type=AT_LEAST_ONE,
    help="How often everything is timed; medians are over all rounds.",
)
@click.option("--device", default="", help="What the machine is, in words; the profile says it.")
@json_option("Print the profile as JSON too.")
def profile(  # one parameter per option
    *,
    model: str,
    flags: tuple[str, ...],
    output: Path,
    chunk_tokens: int,
    context_tokens: int,
    rounds: int,
    device: str,
    as_json: bool,
) -> None:
    """Time MODEL's steps on this machine through the engine, and write a profile for the twin.

    MODEL is a folder or a URI as in a manifest. Engine flags follow behind --, such as --stages=2
    or --transport=nccl; they are those of `python -m pipelineserve_engine.server`.
    """
    if not output.absolute().parent.is_dir():
        text = f'the folder of "{output}" does not exist; make it first'
        raise InvalidInputError("the profile", [Fault("--output", text)])
    console = Console(stderr=True)
    task = Task(
        model=model,
        flags=flags,
        extent=Extent(chunk_tokens, context_tokens),
        num_rounds=rounds,
        device=device or f"{platform.machine()}, {os.cpu_count()} cores",
    )
    measured = _measured(task, console)
    result = fit_profile(measured)
    output.write_text(_yaml_of(result, measured, rounds), encoding="utf-8")
    if as_json:
        click.echo(result.model_dump_json(indent=2))
    else:
        Console().print(summary_of(result, measured))
    console.print(f"Wrote {output}", highlight=False, markup=False, soft_wrap=True)


def _measured(task: Task, console: Console) -> Measured:
    try:
        from pipelineserve_cli.profiles.session import measure  # noqa: PLC0415 - only with it
        from pipelineserve_engine.models import (  # noqa: PLC0415 - only with the engine
            default_cache_dir,
            resolve_model,
        )
    except ModuleNotFoundError as error:
        raise ModelUnavailableError(
            f"profiling needs the engine, but {error.name} is not installed; "
            "pip install 'pipelineserve[engine,cli]'"
        ) from error
    folder = Path(task.model)
    if not folder.is_dir():
        files = resolve_model(
            task.model, cache_dir=default_cache_dir(os.environ), progress=ModelProgress(console)
        )
        folder = files.folder
    with console.status("Starting the stages") as status:

        def tell(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                console.print(text, highlight=False, markup=False)

        return measure(task, folder, tell)


def _yaml_of(result: HardwareProfile, measured: Measured, rounds: int) -> str:
    document = yaml.safe_dump(result.model_dump(mode="json"), sort_keys=False)
    return f"{comment_of(measured, rounds)}{document}"
