"""Whoever types `make` sees all that can be made."""

import re
import subprocess

import pytest
from tools.sources import ROOT


def make(*arguments: str) -> str:
    command = ["make", "--no-print-directory", *arguments]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return answer.stdout


def targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def listed_targets(text: str) -> set[str]:
    return set(re.findall(r"^  make ([\w-]+) +\S", text, re.MULTILINE))


def test_help_lists_every_target_with_its_text() -> None:
    assert listed_targets(make("help")) == targets()


def test_make_alone_prints_the_help() -> None:
    assert make() == make("help")


def test_every_target_runs_whatever_files_exist() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == targets()


@pytest.mark.parametrize("target", sorted(targets() - {"help", "env", "clean"}))
def test_every_target_that_needs_the_environment_makes_it_first(target: str) -> None:
    assert "tools/bootstrap.py" in make("--dry-run", target).splitlines()[0]


def test_ci_runs_check_and_test() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "make check" in lines
    # What `check` does not run is in the one folder that it leaves out.
    assert any(line.startswith('make test WORKERS=2 PYTEST_ARGS="tests/e2e') for line in lines)
