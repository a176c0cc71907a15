"""`pserve local`: the same manifests on this machine, without a cluster."""

import os
from pathlib import Path

import click
from rich.console import Console

from pipelineserve.api import PipelineServe
from pipelineserve.errors import ModelUnavailableError
from pipelineserve_cli.demo import print_commands, run_demo
from pipelineserve_cli.engine_flags import drain_s, engine_flags, inactive_fields
from pipelineserve_cli.engine_process import EngineProcess
from pipelineserve_cli.manifests import read_resource
from pipelineserve_cli.terminal import ModelProgress


@click.group()
def local() -> None:
    """Run a PipelineServe manifest on this machine."""


@local.command()
@click.option(
    "-f",
    "--filename",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Manifest of one PipelineServe.",
)
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Port of the API on loopback.",
)
@click.option("--demo", is_flag=True, help="Send a short mixed load and print what it measured.")
@click.option("--exit", "exits", is_flag=True, help="End after the demo instead of serving on.")
@click.option("--json", "as_json", is_flag=True, help="Print the demo's figures as JSON.")
@click.option("--seed", default=1, show_default=True, help="Seed of the demo's arrivals.")
@click.option("-v", "--verbose", is_flag=True, help="Show the engine's log.")
def up(
    *, filename: Path, port: int, demo: bool, exits: bool, as_json: bool, seed: int, verbose: bool
) -> None:
    """Serve the manifest's model until Ctrl-C."""
    console = Console(stderr=True)
    resource = read_resource(filename)
    for note in inactive_fields(resource):
        console.print(f"note: {note}", style="yellow", highlight=False, markup=False)
    flags = engine_flags(resource, model_folder(resource, console), port)

    def show_log(line: str) -> None:
        if verbose:
            console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)

    def serve(engine: EngineProcess) -> None:
        stages = resource.spec.parallelism.stages
        with console.status(f"Loading {resource.served_name} into {stages} stages"):
            engine.wait_ready()
        console.print(f"Serving {resource.served_name} on {engine.url}/v1")
        if demo:
            run_demo(engine.url, resource, seed=seed, console=console, as_json=as_json)
        if exits:
            return
        print_commands(engine.url, resource.served_name, console)
        engine.wait()

    with EngineProcess(flags, port, drain_s(resource), show_log) as engine:
        try:
            serve(engine)
        except KeyboardInterrupt:
            console.print("Stopping; running requests may end, Ctrl-C again ends at once.")


def model_folder(resource: PipelineServe, console: Console) -> Path:
    """Where the model's files are on this machine; fetches what is missing.

    Raises:
        ModelUnavailableError: they cannot be had, or the engine is not installed.
    """
    try:
        from pipelineserve_engine.models import (  # noqa: PLC0415 - only with the engine's extra
            default_cache_dir,
            resolve_model,
        )
    except ModuleNotFoundError as error:
        raise ModelUnavailableError(
            f"local mode needs the engine, but {error.name} is not installed; "
            "pip install 'pipelineserve[engine,cli]'"
        ) from error
    model = resource.spec.model
    files = resolve_model(
        model.uri,
        revision=model.revision,
        cache_dir=default_cache_dir(os.environ),
        progress=ModelProgress(console),
    )
    return files.folder
