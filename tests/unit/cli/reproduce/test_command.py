"""The command: what is wrong is named, and what it writes is whole."""

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from pipelineserve.errors import PipelineServeError
from pipelineserve_cli.reproduce.command import reproduce
from pipelineserve_cli.reproduce.progress import shown_progress


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(reproduce, list(map(str, arguments)))


def error_of(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, PipelineServeError), result.output
    return str(result.exception)


@pytest.fixture
def steps(tmp_path: Path) -> tuple[object, ...]:
    """The rows that need no simulation."""
    return ("--only", "1", "--only", "2", "--jobs", "1", "--out", tmp_path / "out")


def test_writes_a_report_and_a_table(tmp_path: Path, steps: tuple[object, ...]) -> None:
    result = run(*steps)
    assert result.exception is None, result.output
    assert "T(2048) - T(128)" in result.stdout
    assert "misses" not in result.stdout
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")
    table = json.loads((tmp_path / "out" / "acceptance.json").read_text())
    assert [row["row"] for row in table["rows"]] == ["1", "2"]


def test_json_is_the_table_and_nothing_else(tmp_path: Path, steps: tuple[object, ...]) -> None:
    result = run("--quick", "--json", *steps)
    assert result.exception is None, result.output
    assert result.stdout == (tmp_path / "out" / "acceptance.json").read_text()
    assert json.loads(result.stdout)["effort"] == "quick"


def test_a_row_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    text = error_of("--only", "1", "--only", "99", "--out", tmp_path)
    assert '"99"' in text
    assert "14" in text


def test_a_folder_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "--out" in error_of("--only", "1", "--out", tmp_path / "file")
    assert "--traces" in error_of("--only", "1", "--traces", tmp_path, "--out", tmp_path)


def test_the_bar_ends_when_the_rows_do() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with shown_progress(console, 10, 2) as progress:
        progress.update(0, 4, 0)
        assert progress.bar.tasks[0].total == 10
        progress.update(4, 14, 1)
        assert progress.bar.tasks[0].total == 14
        progress.update(9, 9, 2)
        assert progress.bar.finished


def test_without_a_terminal_nothing_moves() -> None:
    text = io.StringIO()
    with shown_progress(Console(file=text), 10, 1) as progress:
        progress.update(5, 10, 0)
    assert text.getvalue() == ""
