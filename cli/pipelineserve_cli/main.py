"""`pserve`: the command line of PipelineServe."""

import signal
import sys
from importlib.metadata import version
from types import FrameType
from typing import NoReturn

import click

from pipelineserve.errors import PipelineServeError
from pipelineserve_cli.get.command import get
from pipelineserve_cli.load.command import load
from pipelineserve_cli.local import local
from pipelineserve_cli.plan.command import plan
from pipelineserve_cli.profiles.command import profile
from pipelineserve_cli.render import render
from pipelineserve_cli.replays.command import replay
from pipelineserve_cli.reproduce.command import reproduce
from pipelineserve_cli.simulate.command import simulate
from pipelineserve_cli.status.command import status
from pipelineserve_cli.traces.command import trace


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("pipelineserve"), prog_name="pserve")
def pserve() -> None:
    """Serve large language models with pipeline parallelism under latency targets."""


pserve.add_command(get)
pserve.add_command(load)
pserve.add_command(local)
pserve.add_command(plan)
pserve.add_command(profile)
pserve.add_command(render)
pserve.add_command(replay)
pserve.add_command(reproduce)
pserve.add_command(simulate)
pserve.add_command(status)
pserve.add_command(trace)


def _end_orderly(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + number)


def main() -> None:
    """Run the command; errors that a user can mend end with one message and status 1."""
    # Both end through every block that has something to end itself. A shell that starts this in the
    # background lets it inherit an ignored SIGINT; whoever sends one nevertheless means it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _end_orderly)
    try:
        pserve.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except PipelineServeError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
