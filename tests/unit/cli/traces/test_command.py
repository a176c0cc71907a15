"""The commands: what they write, what they print, what they refuse."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipelineserve.errors import InvalidInputError
from pipelineserve_cli.traces.command import trace
from trace_records import header, text_of, two_pieces_at_once

EXAMPLE = Path(__file__).parents[4] / "examples" / "quickstart.yaml"


@pytest.fixture
def record_file(tmp_path: Path) -> Path:
    path = tmp_path / "record.jsonl"
    path.write_text(text_of([header(), *two_pieces_at_once()]))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(trace, list(map(str, arguments)))


def refusal_of(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, InvalidInputError), result.output
    return str(result.exception)


def test_convert_writes_the_trace_and_says_how_to_open_it(
    record_file: Path, tmp_path: Path
) -> None:
    output = tmp_path / "trace.json"
    result = run("convert", record_file, "-o", output)
    assert result.exit_code == 0, result.output
    assert json.loads(output.read_text())["displayTimeUnit"] == "ms"
    assert "3 micro-batches, 4.0 s with work" in result.stdout
    assert "1 times two pieces of one prompt ran on two stages at once." in result.stdout
    assert "ui.perfetto.dev" in result.stderr
    assert "chrome://tracing" in result.stderr


def test_picture_writes_an_svg(record_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "part.svg"
    assert run("picture", record_file, "-o", output, "--from-s=0", "--to-s=2").exit_code == 0
    assert output.read_text().startswith("<svg ")


@pytest.mark.parametrize("name", ["convert", "picture", "run"])
def test_a_missing_folder_is_named_before_anything_is_done(
    name: str, record_file: Path, tmp_path: Path
) -> None:
    source = ("-f", EXAMPLE) if name == "run" else (record_file,)
    message = refusal_of(name, *source, "-o", tmp_path / "missing" / "file.json")
    assert "--output: the folder of" in message


def test_run_refuses_to_write_the_trace_over_its_own_record(tmp_path: Path) -> None:
    message = refusal_of("run", "-f", EXAMPLE, "-o", tmp_path / "trace.jsonl")
    assert "expected one like trace.json" in message


def test_run_refuses_an_engine_that_keeps_no_record(tmp_path: Path) -> None:
    manifest = tmp_path / "sglang.yaml"
    manifest.write_text(EXAMPLE.read_text().replace("type: Torch", "type: SGLang"))
    message = refusal_of("run", "-f", manifest, "-o", tmp_path / "trace.json")
    assert "spec.engine.type: only Torch keeps a record of its stages, got SGLang" in message
