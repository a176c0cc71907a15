"""All commands of `pserve`, each imported when it is asked for: together they take a second."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version

import click

from pipelineserve.errors import PipelineServeError

COMMANDS: Mapping[str, str] = {
    "get": "pipelineserve_cli.get.command",
    "load": "pipelineserve_cli.load.command",
    "local": "pipelineserve_cli.local",
    "plan": "pipelineserve_cli.plan.command",
    "profile": "pipelineserve_cli.profiles.command",
    "render": "pipelineserve_cli.render",
    "replay": "pipelineserve_cli.replays.command",
    "reproduce": "pipelineserve_cli.reproduce.command",
    "simulate": "pipelineserve_cli.simulate.command",
    "status": "pipelineserve_cli.status.command",
    "trace": "pipelineserve_cli.traces.command",
}
"""By name, the module that has a command of that name."""


class ImportingGroup(click.Group):
    """Finds commands in their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None if there is none."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return command


@click.group(cls=ImportingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("pipelineserve"), prog_name="pserve")
@click.pass_obj
def pserve(begin: Callable[[], None] | None) -> None:
    """Serve large language models with pipeline parallelism under latency targets."""
    if begin is not None:
        begin()


def run(begin: Callable[[], None]) -> int:
    """Run the command that the command line names; its exit status.

    Args:
        begin: is called once the command is imported, before it runs.
    """
    try:
        pserve.main(standalone_mode=False, obj=begin)
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
