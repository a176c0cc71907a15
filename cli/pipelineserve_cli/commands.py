"""All commands of `pserve`."""

import sys
from importlib.metadata import version

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


def run() -> int:
    """Run the command that the command line names; its exit status."""
    try:
        pserve.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        sys.stderr.write("interrupted\n")
        return 130
    except PipelineServeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0
