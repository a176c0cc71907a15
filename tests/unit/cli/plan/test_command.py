"""`pserve plan` from its flags to what it prints."""

import json
import re

import pytest
import yaml
from click.testing import CliRunner, Result

from pipelineserve.api.spec import PipelineServeSpec
from pipelineserve.errors import InvalidInputError
from pipelineserve_cli.plan.command import NoLayoutError, plan

MACHINE = ("--model", "Qwen2.5-32B", "--gpu", "a100-40gb-pcie", "--gpus", "4")
LOAD = ("--input-tokens", "800", "--output-tokens", "uniform:50,100", "--rate", "3")
TARGETS = ("--ttft-ms", "2000", "--tpot-ms", "200")
LITTLE = ("-n", "40", "--seeds", "1", "--layouts", "1")


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(plan, list(arguments))


def fault_of(*arguments: str) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, InvalidInputError), result.output
    return str(result.exception)


def test_a_plan_shows_question_ranking_memory_and_refusals() -> None:
    result = run(*MACHINE, *LOAD, *TARGETS, *LITTLE)
    assert result.exit_code == 0, result.exception
    for text in (
        "Qwen2.5-32B, 64 layers, 16 bits",
        "up to 4 x NVIDIA A100-PCIe-40GB",
        "3.00/s, 800 tokens in and",
        "TTFT P90 2000 ms, TPOT P90 200 ms",
        "Simulated, best first",
        "Memory of each GPU of the first",
        "stage 0: weights of 61.0 GiB per GPU, but only 35.5 GiB usable",
    ):
        assert text in result.stdout
    assert "Formulas" not in result.stdout


def test_the_ranking_can_be_read_whole_in_80_columns() -> None:
    arguments = (*MACHINE, *LOAD, *TARGETS, *LITTLE[:2], "--seeds", "2", "--layouts", "2")
    result = CliRunner(env={"COLUMNS": "80"}).invoke(plan, list(arguments))
    assert "Predictive" in result.stdout
    assert "attained" in result.stdout
    assert "…" not in result.stdout


def test_explained_formulas_have_their_numbers_and_sources() -> None:
    result = run(*MACHINE, *LOAD, *TARGETS, *LITTLE, "--explain", "--stages", "4")
    assert "2 · 64 · 8 · 128 · 2 ÷ 1" in result.stdout
    assert "Pollaczek-Khinchine" in result.stdout


def test_json_holds_everything_in_base_units() -> None:
    result = run(*MACHINE, *LOAD, *TARGETS, *LITTLE, "--json", "--explain")
    content = json.loads(result.stdout)
    first = content["ranked"][0]
    assert first["meets_targets"] is True
    assert first["goodput_per_device_s"] == pytest.approx(
        first["goodput_per_s"]["mean"] / first["num_devices"]
    )
    assert len(first["stages"]) == first["num_stages"]
    assert 0 < first["ttft_s"]["median"] < 2.0
    assert content["question"]["tpot"] == {"percentile": 90, "target_s": 0.2}
    assert all(refused["why"] for refused in content["refused"])
    assert {"name", "formula", "numbers", "result", "source"} == set(content["formulas"][0])


def test_yaml_is_a_part_of_a_manifest_that_the_resource_accepts() -> None:
    result = run(*MACHINE, *LOAD, *TARGETS, *LITTLE, "-o", "yaml", "--stages", "4")
    spec = yaml.safe_load(result.stdout)["spec"]
    assert spec["parallelism"] == {"stages": 4, "tensorParallel": 1}
    assert spec["slo"]["ttft"] == {"percentile": 90, "milliseconds": 2000}
    whole = {"model": {"uri": "hf://Qwen/Qwen2.5-32B-Instruct"}, **spec}
    read = PipelineServeSpec.model_validate_json(json.dumps(whole))
    assert read.effective_chunking().static_tokens == spec["chunking"]["staticTokens"]


def test_the_nearest_is_shown_although_it_misses_and_the_status_says_so() -> None:
    load = ("--workload", "azure-4000", "--rate", "4.5", "--stages", "3", "--tensor-parallel", "1")
    result = run(*MACHINE, *load, *TARGETS, "-n", "300", "--seeds", "1")
    assert isinstance(result.exception, NoLayoutError)
    assert re.search(r"1 x TP1 PP3 .* no\s*$", result.stdout, re.MULTILINE)
    assert "no layout meets the targets at this rate" in str(result.exception)


def test_without_a_best_there_is_no_manifest() -> None:
    strict = ("--tpot-ms", "1")
    result = run(*MACHINE, *LOAD, *strict, *LITTLE, "-o", "yaml")
    assert isinstance(result.exception, NoLayoutError)
    assert result.stdout == ""


def test_time_that_is_over_ends_the_simulations_with_a_note() -> None:
    several = ("-n", "40", "--seeds", "5", "--layouts", "1", "--budget-s", "0.000001")
    result = run(*MACHINE, *LOAD, *TARGETS, *several)
    assert "time was over before all simulations" in result.stdout


def test_a_named_workload_has_its_own_lengths() -> None:
    result = run(*MACHINE, "--workload", "sharegpt", "--rate", "2", *TARGETS, *LITTLE)
    assert "fitted to" in result.stdout


def test_an_unknown_gpu_is_answered_with_the_nearest_names() -> None:
    text = fault_of(*MACHINE[:2], "--gpu", "A100", "--gpus", "4", *LOAD, *TARGETS)
    assert re.search(r'--gpu: got "A100", expected one of .*; nearest: a10-24gb, a100-', text)


def test_more_stages_than_layers_are_refused_with_both_numbers() -> None:
    text = fault_of(*MACHINE[:4], "--gpus", "64", *LOAD, *TARGETS, "--stages", "64", "--model",
                    "Qwen2.5-14B")  # fmt: skip
    assert "--stages: got 64, expected at most 48: Qwen2.5-14B has no more layers" in text


@pytest.mark.parametrize("flag", ["--ttft-ms", "--tpot-ms", "--rate", "--gpus", "--budget-s"])
def test_zero_is_refused_by_the_flags_name(flag: str) -> None:
    result = run(*MACHINE, *LOAD, *TARGETS, flag, "0")
    assert result.exit_code == 2
    assert f"Invalid value for '{flag}'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*MACHINE, *LOAD), "--ttft-ms: got no target"),
        ((*MACHINE, *LOAD, *TARGETS, "--link", "wire"), '--link: got "wire"'),
        ((*MACHINE, *TARGETS, "--rate", "1"), "--workload: got none"),
        ((*MACHINE, *LOAD[:4], *TARGETS), "--rate: needed"),
        ((*MACHINE, *LOAD, *TARGETS, "--workload", "cnn"), "--workload: got lengths as well"),
        ((*MACHINE, *TARGETS, "--workload", "cnn"), "--rate: got none, expected arrivals"),
        ((*MACHINE, *LOAD, *TARGETS, "--rate-scale", "2"), "--rate: needed, without --rate-scale"),
        ((*MACHINE, *LOAD, *TARGETS, "--stages", "8"), "--gpus: got 4, expected at least 8"),
        (
            (*MACHINE, *LOAD, *TARGETS, "--tensor-parallel", "3"),
            "--tensor-parallel: got 3, expected 1, 2, 4 or 8",
        ),
        ((*MACHINE, *LOAD, *TARGETS, "--json", "-o", "yaml"), "--output: got --json as well"),
        (
            ("--model", "gpt-9", *MACHINE[2:], *LOAD, *TARGETS),
            '--model: got "gpt-9", expected qwen2.5-14b',
        ),
    ],
)
def test_what_is_missing_or_contradicts_is_named_by_its_flag(
    arguments: tuple[str, ...], message: str
) -> None:
    assert message in fault_of(*arguments)
