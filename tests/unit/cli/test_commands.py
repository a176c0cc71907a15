"""Each command of `pserve` is there under its name, and costs no other one's imports."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from pipelineserve_cli.commands import COMMANDS, pserve

IMPORTED = """
import sys
from pipelineserve_cli.commands import COMMANDS, pserve
pserve.main(["local", "--help"], standalone_mode=False)
print(*sorted(name for name, module in COMMANDS.items() if module in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_name(name: str) -> None:
    command = pserve.get_command(click.Context(pserve), name)
    assert command is not None
    assert command.name == name


def test_help_lists_all_and_an_unknown_one_is_named() -> None:
    listed = CliRunner().invoke(pserve, ["--help"]).output
    assert all(f"\n  {name} " in listed for name in COMMANDS)
    unknown = CliRunner().invoke(pserve, ["serve"])
    assert unknown.exit_code == 2
    assert "No such command 'serve'" in unknown.output


def test_a_command_imports_no_other_one() -> None:
    program = [sys.executable, "-c", IMPORTED]
    ended = subprocess.run(program, capture_output=True, text=True, check=True)
    assert set(ended.stderr.split()) <= {"local", "render"}, "local mode renders"
