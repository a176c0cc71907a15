"""`pserve local`: the same manifests on this machine, without a cluster."""

import os
import secrets
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from pipelineserve.api import PipelineServe
from pipelineserve.errors import ModelUnavailableError
from pipelineserve_cli.demo import print_commands, run_demo
from pipelineserve_cli.edits import ManifestWatch
from pipelineserve_cli.engine_flags import drain_s, engine_flags, inactive_fields
from pipelineserve_cli.engine_process import EngineProcess
from pipelineserve_cli.manifests import read_resource
from pipelineserve_cli.sidecar_process import SidecarPlan, SidecarProcess
from pipelineserve_cli.terminal import ModelProgress

_LOOK_PERIOD_S = 0.3


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of `pserve local up`, as the command line gives them."""

    filename: Path
    port: int
    page_port: int
    control: bool
    demo: bool
    exits: bool
    as_json: bool
    seed: int
    verbose: bool


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
@click.option(
    "--page-port",
    default=8090,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Port of the controller's live page on loopback.",
)
@click.option(
    "--control/--no-control",
    default=True,
    help="Run a controller that keeps the targets, with a live page; on by default.",
)
@click.option("--demo", is_flag=True, help="Send a short mixed load and print what it measured.")
@click.option("--exit", "exits", is_flag=True, help="End after the demo instead of serving on.")
@click.option("--json", "as_json", is_flag=True, help="Print the demo's figures as JSON.")
@click.option("--seed", default=1, show_default=True, help="Seed of the demo's arrivals.")
@click.option("-v", "--verbose", is_flag=True, help="Show the logs of engine and controller.")
def up(**given: Any) -> None:
    """Serve the manifest's model until Ctrl-C.

    The controller follows the manifest: an edit of slo, chunking, rebalancing, queueing or control
    is in force at once, and restarts nothing.
    """
    LocalRun(UpOptions(**given), Console(stderr=True)).run()


class LocalRun:
    """One engine with its controller beside it, from the manifest to the end of both."""

    def __init__(self, options: UpOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._resource = read_resource(options.filename)
        self._watch = ManifestWatch(options.filename, self._resource, has_control=options.control)

    def run(self) -> None:
        """Serve until Ctrl-C, or until the demo is over if it is to end then."""
        options, resource, console = self._options, self._resource, self._console
        for note in inactive_fields(resource, has_control=options.control):
            console.print(f"note: {note}", style="yellow", highlight=False, markup=False)
        address = _control_address() if options.control else ""
        folder = model_folder(resource, console)
        flags = engine_flags(resource, folder, options.port, address)
        engine = EngineProcess(flags, options.port, drain_s(resource), self._show_log)
        # The controller is ended after the engine, so that its last requests are steered too.
        with ExitStack() as outlasting, engine:
            try:
                self._load(engine)
                if options.control:
                    sidecar = outlasting.enter_context(self._sidecar(engine, address))
                    sidecar.wait_ready()
                    console.print(f"Live page on {sidecar.url} (or: pserve status {sidecar.url})")
                self._serve(engine)
            except KeyboardInterrupt:
                console.print("Stopping; running requests may end, Ctrl-C again ends at once.")

    def _load(self, engine: EngineProcess) -> None:
        resource, console = self._resource, self._console
        stages = resource.spec.parallelism.stages
        with console.status(f"Loading {resource.served_name} into {stages} stages"):
            engine.wait_ready()
        console.print(f"Serving {resource.served_name} on {engine.url}/v1")

    def _sidecar(self, engine: EngineProcess, address: str) -> SidecarProcess:
        options = self._options
        plan = SidecarPlan(address, f"{engine.url}/metrics", options.filename, options.page_port)
        return SidecarProcess(plan, self._show_log)

    def _serve(self, engine: EngineProcess) -> None:
        options, resource, console = self._options, self._resource, self._console
        if options.demo:
            run_demo(
                engine.url, resource, seed=options.seed, console=console, as_json=options.as_json
            )
        if options.exits:
            return
        print_commands(engine.url, resource.served_name, console)
        while engine.is_serving(_LOOK_PERIOD_S):
            for message in self._watch.look():
                console.print(
                    message, style="yellow", highlight=False, markup=False, soft_wrap=True
                )

    def _show_log(self, line: str) -> None:
        if self._options.verbose:
            self._console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)


def _control_address() -> str:
    """A socket file that nobody can have taken before: the engine is its owner and removes it."""
    return f"unix:{tempfile.gettempdir()}/pserve-{secrets.token_hex(8)}.sock"


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
