"""`pserve simulate`: what it prints, and by which name it refuses what cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipelineserve.errors import InvalidInputError
from pipelineserve_cli.simulate.command import simulate
from pipelineserve_cli.simulate.options import FIELDS, flag_of
from pipelineserve_simulator.described.building import describe

SMALL = ("--workload", "azure-400", "--rate", "4", "-n", "30")
FILE = """
workload: azure-400
rate_per_s: 4
requests: 30
policy: Controlled
targets: {ttft_ms: 1000}
faults:
  - {kind: ControllerGone, start_s: 3, end_s: 9}
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(simulate, list(map(str, arguments)))


def report_of(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert isinstance(report, dict)
    return report


def refusal_of(*arguments: object) -> dict[str, str]:
    result = run(*arguments)
    assert isinstance(result.exception, InvalidInputError), result.output
    return {fault.field: fault.message for fault in result.exception.faults}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "simulation.yaml"
    path.write_text(FILE)
    return path


def test_people_get_a_table_with_all_the_figures() -> None:
    result = run(*SMALL)
    assert result.exit_code == 0, result.output
    for part in (
        "TTFT ms", "TPOT ms", "E2E ms", "longest gap ms", "slowest stage ms", "chunk tokens",
        "P90 2000", "30 arrived, 30 finished, 0 failed", "attainment", "goodput", "bubble",
        "KV use mean", "0 preemptions", "Whole run", "Steady window", "16, 16, 16, 16 layers",
        "Poisson, 4/s",
    ):  # fmt: skip
        assert part in result.stdout, part


def test_several_seeds_give_means_and_intervals() -> None:
    result = run(*SMALL, "--seed", 1, "--seed", 2)
    assert "Whole runs of 2 seeds" in result.stdout
    assert "±" in result.stdout
    report = report_of(*SMALL, "--seed", 1, "--seed", 2)
    assert [run["seed"] for run in report["runs"]] == [1, 2]
    p90 = report["whole"]["ttft_s"]["p90"]
    singles = [run["whole"]["ttft_s"]["p90"] for run in report["runs"]]
    assert p90["mean"] == pytest.approx(sum(singles) / 2)
    assert p90["low"] < p90["mean"] < p90["high"]


def test_programs_get_the_same_bytes_for_the_same_seed_and_the_description_itself() -> None:
    first = run(*SMALL, "--json").stdout
    assert run(*SMALL, "--json").stdout == first
    report = json.loads(first)
    assert report["schema"] == "pserve-simulate/1"
    description = report["conditions"]["description"]
    assert (description["workload"], description["rate_per_s"]) == ("azure-400", 4.0)
    assert describe(description).model_dump(mode="json") == description


def test_flags_go_before_what_the_file_says(file: Path) -> None:
    plain = report_of("-f", file)["conditions"]["description"]
    assert (plain["targets"]["ttft_ms"], plain["targets"]["tpot_ms"]) == (1000.0, 200.0)
    changed = report_of("-f", file, "--ttft-ms", 700, "--seed", 5)["conditions"]["description"]
    assert (changed["targets"]["ttft_ms"], changed["seeds"]) == (700.0, [5])
    assert changed["faults"] == plain["faults"]


def test_a_controller_shows_what_it_did(file: Path) -> None:
    result = run("-f", file)
    assert "ControllerGone: start_s 3.0, end_s 9.0" in result.stdout
    assert "controller, seed 1" in result.stdout
    assert "leases that ended: 1" in " ".join(result.stdout.split())


def test_the_controllers_law_can_be_a_flag() -> None:
    report = report_of(*SMALL, "--policy", "controlled", "--chunk-law", "greedy")
    assert report["conditions"]["description"]["control"]["chunk_law"] == "Greedy"
    assert report["whole"]["num_finished"] == 30


def test_faults_can_be_flags() -> None:
    report = report_of(
        *SMALL, "--fault", "StageLost:stage_index=1,at_s=4,down_s=2",
        "--fault", "StageSlowed:stage_index=0,factor=3,start_s=0,end_s=5",
    )  # fmt: skip
    kinds = [fault["kind"] for fault in report["conditions"]["description"]["faults"]]
    assert kinds == ["StageLost", "StageSlowed"]
    assert report["whole"]["num_finished"] == 30


@pytest.mark.parametrize(
    ("arguments", "name", "part"),
    [
        (("--rate", "4"), "--workload", "required"),
        (("--workload", "azure-400"), "--rate", "swept over rates"),
        ((*SMALL, "--stages", "0"), "--stages", "expected at least 1"),
        ((*SMALL, "--chunk", "64"), "--chunk", "from min_tokens"),
        ((*SMALL, "--profile", "h100"), "--profile", "expected a file"),
        ((*SMALL, "--timing", "interleaved", "--workers", "3"), "--workers", "a divisor of 4"),
        ((*SMALL, "--chunk-law", "greedy"), "control", "use Controlled"),
        ((*SMALL, "--fault", "RecordsLost:start_s=1,end_s=2"), "--fault", "Controlled"),
    ],
)
def test_what_cannot_be_is_named_by_its_flag(
    arguments: tuple[str, ...], name: str, part: str
) -> None:
    assert part in refusal_of(*arguments)[name]


def test_what_a_file_says_is_named_by_its_field_and_what_a_flag_says_by_the_flag(
    file: Path,
) -> None:
    assert set(refusal_of("-f", file, "--policy", "Static", "--chunk", 1)) == {
        "faults[0].kind",
        "--chunk",
    }
    file.write_text("workload: azure-400\nrate_per_s: many\n")
    assert "expected a number" in refusal_of("-f", file)["rate_per_s"]


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: 1\n---\nb: 2\n", "a: [1\n", ""])
def test_a_file_that_is_no_description_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    assert refusal_of("-f", file)


@pytest.mark.parametrize(
    "text", ["Fire:start_s=1", "StageLost:at_s", "ControllerGone start_s=1,end_s=2"]
)
def test_a_fault_that_is_no_such_text_is_refused_before_anything_is_done(text: str) -> None:
    result = run(*SMALL, "--fault", text)
    assert result.exit_code == 2
    assert "expected KIND:field=value" in result.output


def test_every_flag_stands_for_a_field() -> None:
    for name, path in FIELDS.items():
        assert flag_of(".".join(path)) == f"--{name.replace('_', '-')}"
    assert flag_of("control.delay_s") is None
