"""The formulas with a deployment's numbers."""

from functools import cache

import pytest

from pipelineserve_simulator.planning.explanations import Explained, explain
from pipelineserve_simulator.planning.search import Effort, Question, make_plan
from plan_questions import QWEN_HALF_B, model_of, question, result


def explained(asked: Question) -> dict[str, Explained]:
    plan = make_plan(asked, Effort(1, (1,)), run=lambda _: result())
    return {line.name: line for line in explain(asked, plan.ranked[0])}


@cache
def of_four_stages() -> dict[str, Explained]:
    return explained(question(tensor_parallel=1, num_stages=4))


@pytest.mark.parametrize(
    ("name", "numbers", "outcome"),
    [
        ("KV per token, model", "2 · 64 · 8 · 128 · 2 ÷ 1", "256.0 KiB"),
        ("KV per token, GPU of stage 0", "2 · 16 · 8 · 128 · 2 ÷ 1", "64.0 KiB"),
        ("weights, GPU of stage 0", "(16 · 930.0 MiB + 1.5 GiB) ÷ 1", "16.0 GiB"),
        ("micro-batches for 90%", "(4 - 1) · 0.9 ÷ 0.1", "27"),
    ],
)
def test_what_depends_on_sizes_alone_is_exact(name: str, numbers: str, outcome: str) -> None:
    line = of_four_stages()[name]
    assert (line.numbers, line.result) == (numbers, outcome)


def test_every_formula_has_its_source_and_all_its_numbers() -> None:
    for line in of_four_stages().values():
        assert line.source
        assert line.result
        assert "nan" not in line.numbers + line.result


def test_stages_are_said_to_gain_over_shards_on_a_slow_link() -> None:
    gain = float(of_four_stages()["throughput of PP 4 over TP 4"].result)
    # The published capacities are 8.28 and 3.48 requests per second.
    assert gain == pytest.approx(8.28 / 3.48, rel=0.15)


def test_the_formulas_of_shards_divide_by_them() -> None:
    line = explained(question(tensor_parallel=2, num_stages=2))["KV per token, GPU of stage 0"]
    assert (line.numbers, line.result) == ("2 · 32 · 8 · 128 · 2 ÷ 2", "64.0 KiB")


def test_a_single_device_has_no_gain_to_explain() -> None:
    lines = explained(question(model=model_of(QWEN_HALF_B), num_devices=1))
    assert not [name for name in lines if name.startswith(("throughput", "all-reduce"))]
    assert lines["efficiency"].result == "100%"
