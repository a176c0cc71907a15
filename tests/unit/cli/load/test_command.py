"""The command: its defaults end by themselves, contradictions are named, secrets stay secret."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipelineserve.errors import PipelineServeError
from pipelineserve_cli.load.command import load

LENGTHS = "prompt_tokens,output_tokens\n" + "10,2\n" * 30
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{i},9,4\n" for i in range(250))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(load, list(map(str, arguments)), catch_exceptions=True)


def plan(*arguments: object) -> Any:
    result = run("--dry-run", "--json", *arguments)
    assert result.exception is None, result.output
    return json.loads(result.stdout)


def error_of(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, PipelineServeError), result.output
    return str(result.exception)


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    path = tmp_path / "lengths.csv"
    path.write_text(LENGTHS)
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_nothing_asked_for_is_a_hundred_requests_of_a_poisson_process() -> None:
    made = plan()
    assert len(made["requests"]) == 100
    assert made["arrivals"] == "Poisson, 1/s"
    assert made["requests"][0]["prompt_tokens"] == 256
    assert made["requests"][0]["max_tokens"] == 64


def test_a_trace_is_replayed_to_its_last_row(trace: Path) -> None:
    made = plan("--dataset", trace)
    assert len(made["requests"]) == 250
    assert made["planned_until"] == "the file's last row"
    assert made["requests"][-1]["at_s"] == 249


def test_a_rate_turns_a_trace_into_lengths(trace: Path) -> None:
    made = plan("--dataset", trace, "--rate", 2)
    assert len(made["requests"]) == 100
    assert made["arrivals"] == "Poisson, 2/s"


def test_a_duration_alone_is_the_only_bound(lengths: Path) -> None:
    made = plan("--duration", 50, "--rate", 10, "--arrivals", "constant", "--dataset", lengths)
    assert len(made["requests"]) == 501
    assert made["planned_until"] == "the duration"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--arrivals", "gamma", "--cv", "4"), "gamma gaps, 1/s, CV 4"),
        (("--arrivals", "constant", "--rate", "3"), "constant, 3/s"),
        (
            ("--arrivals", "bursts", "--burst-off", "30"),
            "bursts, 1/s on average: Poisson 4/s for 10 s, none for 30 s",
        ),
    ],
)
def test_every_process_can_be_asked_for(arguments: tuple[str, ...], text: str) -> None:
    assert plan(*arguments)["arrivals"] == text


def test_a_plan_for_people_shows_counts_and_lengths() -> None:
    text = run("--dry-run", "--warm-up", 5, "--input-tokens", "uniform:32,64").output
    assert "100 measured after 5 of warm-up" in text
    assert "in: uniform 32 to 64; out: 64" in text


def test_options_that_need_a_file_are_all_named() -> None:
    text = error_of("--dry-run", "--rows", "0:9", "--shuffle", "--longest-tokens", 5)
    assert "(3 faults)" in text
    assert "--rows: only for a file's rows; name the file with --dataset" in text


def test_options_against_timestamps_are_all_named(trace: Path) -> None:
    text = error_of(
        *("--dry-run", "--dataset", trace, "--arrivals", "timestamps", "--rate", 1, "--shuffle")
    )
    assert "--rate: timestamps have their own rate; change it by --rate-scale" in text
    assert "--shuffle: timestamps have an order; choose --arrivals poisson" in text
    assert "--rate-scale: only for timestamps" in error_of("--dry-run", "--rate-scale", 2)


@pytest.mark.parametrize("rows", ["5", "a:b", "9:3", "-1:4", "3:3"])
def test_a_range_of_rows_that_is_none_is_refused(rows: str, lengths: Path) -> None:
    result = run("--dry-run", "--dataset", lengths, f"--rows={rows}")
    assert result.exit_code == 2
    assert "expected FIRST:END like 0:400" in " ".join(result.output.split())


def test_lengths_in_another_form_are_refused() -> None:
    result = run("--dry-run", "--input-tokens", "long")
    assert result.exit_code == 2
    assert 'got "long"' in result.output


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://server", "http://", "http://h:x", "http://h/?a=b"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    assert "expected an address like http://127.0.0.1:8000" in error_of("--url", url)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    text = error_of("--url", "http://me:hunter2@server")
    assert "hunter2" not in text
    assert "OPENAI_API_KEY" in text


def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("sk-one\nsk-two\n")
    text = error_of("--api-key-file", path)
    assert "--api-key-file: holds characters that no HTTP header can carry" in text
    assert "sk-" not in text


def test_an_output_without_a_folder_is_refused_before_the_run(tmp_path: Path) -> None:
    assert "does not exist; make it first" in error_of("--output", tmp_path / "none" / "x.json")


def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    assert "nothing answers at http://127.0.0.1:1" in error_of("--url", "http://127.0.0.1:1/v1/")
