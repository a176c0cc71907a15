"""`pserve local`: the same manifests on this machine, without a cluster."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from pipelineserve_cli.demo import print_commands, run_demo
from pipelineserve_cli.edits import ManifestWatch
from pipelineserve_cli.ending import EndRequests
from pipelineserve_cli.local_limits import inactive_fields
from pipelineserve_cli.local_server import LocalServer
from pipelineserve_cli.manifests import read_resource
from pipelineserve_cli.sglang_python import FLAG, VARIABLE

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
    sglang_python: Path | None
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
@click.option(
    FLAG,
    envvar=VARIABLE,
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, executable=True, path_type=Path),
    help="Python of an environment with SGLang and the add-on, for manifests whose engine it is.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the logs of all containers.")
def up(**given: Any) -> None:
    """Serve the manifest's model until Ctrl-C.

    The controller follows the manifest: an edit of slo, chunking, rebalancing, queueing or control
    is in force at once, and restarts nothing.
    """
    with EndRequests() as end_requests:
        LocalRun(UpOptions(**given), Console(stderr=True), end_requests).run()


class LocalRun:
    """A resource's pods, from the manifest to the end of all of them."""

    def __init__(self, options: UpOptions, console: Console, end_requests: EndRequests) -> None:
        self._options = options
        self._console = console
        self._end_requests = end_requests
        self._resource = read_resource(options.filename)

    def run(self) -> None:
        """Serve until Ctrl-C, or until the demo is over if it is to end then."""
        options, console = self._options, self._console
        page_port = options.page_port if options.control else None
        server = LocalServer(
            self._resource,
            options.port,
            page_port,
            console,
            self._show_log,
            end_requests=self._end_requests,
            sglang_python=options.sglang_python,
        )
        for note in inactive_fields(self._resource, has_control=options.control):
            console.print(f"note: {note}", style="yellow", highlight=False, markup=False)
        self._end_requests.check()  # or what has not begun yet would begin, and end
        with server:
            try:
                self._load(server)
                self._serve(server)
            except KeyboardInterrupt:
                console.print("Stopping; running requests may end, Ctrl-C again ends at once.")

    def _load(self, server: LocalServer) -> None:
        server.wait_ready()
        self._console.print(f"Serving {self._resource.served_name} on {server.url}/v1")
        if self._options.control:
            server.wait_page()
            url = server.page_url
            self._console.print(f"Live page on {url} (or: pserve status {url})")

    def _serve(self, server: LocalServer) -> None:
        options, resource, console = self._options, self._resource, self._console
        if options.demo:
            with self._end_requests.heeded_anywhere():
                run_demo(
                    server.url,
                    resource,
                    seed=options.seed,
                    console=console,
                    as_json=options.as_json,
                )
        if options.exits:
            return
        take = server.apply if options.control else None
        watch = ManifestWatch(options.filename, resource, take)
        print_commands(server.url, resource.served_name, console)
        while True:
            for message in [*server.news(_LOOK_PERIOD_S), *watch.look()]:
                console.print(
                    message, style="yellow", highlight=False, markup=False, soft_wrap=True
                )

    def _show_log(self, line: str) -> None:
        if self._options.verbose:
            self._console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)
