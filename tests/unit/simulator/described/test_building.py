"""From a description to a scenario, and whatever cannot be by its field's name."""

from pathlib import Path
from typing import Any

import pytest

from pipelineserve.api.documents import read_documents
from pipelineserve.errors import InvalidInputError
from pipelineserve.policy.control.objectives import ChunkLaw, HoldLaw, LatencyGoal, OrderLaw
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.schedule import Continuous, FillDrain
from pipelineserve_simulator.baselines.options import BaselineName
from pipelineserve_simulator.described.building import DescribedSimulation, build, describe
from pipelineserve_simulator.described.description import PolicyName
from pipelineserve_simulator.described.running import run_seed
from pipelineserve_simulator.hardware.catalogue import load_profile
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.pipeline.faults import (
    ControllerGone,
    RecordsLost,
    StageLost,
    StageSlowed,
)
from pipelineserve_simulator.pipeline.options import FreeRunning, Interleaved, LockStep

SMALL = {"workload": "azure-400", "rate_per_s": 4.0, "requests": 30}


def built(**fields: Any) -> DescribedSimulation:
    return build(describe({**SMALL, **fields}))


def faults_of(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        build(describe(document))
    return {fault.field: fault.message for fault in caught.value.faults}


# What it means


def test_hardly_anything_has_to_be_said() -> None:
    simulation = built()
    scenario = simulation.scenario
    assert scenario.profile == load_profile("a100-40gb-pcie/qwen2.5-32b")
    assert scenario.layout.partition.layers_per_stage == (16, 16, 16, 16)
    assert scenario.timing == FreeRunning()
    assert scenario.make_control is None
    assert simulation.seeds == (1,)
    assert simulation.targets.ttft is not None
    assert (simulation.targets.ttft.percentile, simulation.targets.ttft.target_s) == (90, 2.0)


def test_every_baseline_can_be_named() -> None:
    names = {name.value for name in BaselineName}
    assert {name.value for name in PolicyName} - names == {"Controlled"}
    for name in names:
        run = run_seed(built(policy=name, timing="LockStep"), 1)
        assert run.whole.num_finished == 30, name


@pytest.mark.parametrize(
    ("fields", "timing", "num_slots"),
    [
        ({"timing": "Continuous"}, FreeRunning(), 4),
        ({"timing": "FillDrain", "slots": 6}, FreeRunning(), 6),
        ({"timing": "LockStep"}, LockStep(), 4),
        ({"timing": "Interleaved", "stages": 8}, Interleaved(4), 4),
        ({"timing": "Interleaved", "stages": 8, "workers": 2}, Interleaved(2), 2),
    ],
)
def test_every_way_to_move_can_be_named(
    fields: dict[str, Any], timing: object, num_slots: int
) -> None:
    scenario = built(**fields).scenario
    assert (scenario.timing, scenario.sizes.num_slots) == (timing, num_slots)
    scheduler = scenario.make_scheduler(scenario.sizes, scenario.step_time_model)
    is_drained = fields["timing"] == "FillDrain"
    assert scheduler.schedule == (FillDrain() if is_drained else Continuous())


def test_the_order_of_the_queue_is_that_of_the_policy_unless_said_otherwise() -> None:
    for given, expected in ((None, Ageing()), ("Arrival", Arrival())):
        scenario = built(**({} if given is None else {"order": given})).scenario
        scheduler = scenario.make_scheduler(scenario.sizes, scenario.step_time_model)
        assert scheduler._waiting._order == expected


def test_a_controller_follows_the_described_targets_and_their_edits() -> None:
    control = built(
        policy="Controlled",
        order="Triage",
        chunks={"static_tokens": 256},
        targets={"ttft_ms": 1500, "tpot_ms": None, "percentile": 95},
        control={
            "chunk_law": "Greedy",
            "lease_s": 2,
            "delay_s": 0.01,
            "edits": [{"at_s": 5, "targets": {"tpot_ms": 100}}],
        },
    ).control
    assert control is not None
    first, second = control.objectives_at(4.9), control.objectives_at(5.0)
    assert (first.ttft, first.tpot) == (LatencyGoal(95, 1.5), None)
    assert (second.ttft, second.tpot) == (LatencyGoal(95, 1.5), LatencyGoal(95, 0.1))
    assert (first.chunk_law, first.order_law, first.hold_law, first.lease_s) == (
        ChunkLaw.GREEDY,
        OrderLaw.TRIAGE,
        HoldLaw.AUTO,
        2.0,
    )
    assert (first.static_tokens, control.delay_s, control.period_s) == (256, 0.01, 0.2)
    assert second.generation > first.generation


def test_faults_are_those_of_the_run() -> None:
    simulation = built(
        policy="Controlled",
        faults=[
            {"kind": "StageSlowed", "stage_index": 3, "factor": 2, "start_s": 1, "end_s": 2},
            {"kind": "StageLost", "stage_index": 0, "at_s": 3, "down_s": 1.5},
            {"kind": "ControllerGone", "start_s": 4, "end_s": 5, "keeps_journal": False},
            {"kind": "RecordsLost", "start_s": 6, "end_s": 7},
        ],
    )
    assert simulation.scenario.faults == (
        StageSlowed(3, 2.0, 1.0, 2.0),
        StageLost(0, 3.0, 1.5),
        ControllerGone(4.0, 5.0, keeps_journal=False),
        RecordsLost(6.0, 7.0),
    )


def test_a_files_rows_are_a_workload_at_their_times_or_at_a_rate(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0.0,100,5\n2.0,200,6\n3.0,300,7\n")
    rows = {"trace_file": str(trace)}
    requests = build(describe({**rows, "rate_scale": 2.0})).scenario.workload.requests
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in requests(Chance(1))] == [
        (0.0, 100, 5),
        (1.0, 200, 6),
        (1.5, 300, 7),
    ]
    again = build(describe({**rows, "rate_per_s": 5.0, "requests": 7})).scenario.workload
    assert len(again.requests(Chance(1))) == 7


def test_a_profile_may_be_a_file(tmp_path: Path) -> None:
    shipped = load_profile("a100-40gb-pcie/qwen2.5-14b")
    path = tmp_path / "mine.yaml"
    path.write_text(shipped.model_copy(update={"name": "mine"}).model_dump_json())
    assert built(profile=str(path)).scenario.profile.name == "mine"
    path.write_text("name: mine\n")
    assert "required, but missing" in faults_of({**SMALL, "profile": str(path)})["profile"]


def test_the_same_description_and_seed_give_the_same_figures() -> None:
    simulation = built(
        policy="Controlled", faults=[{"kind": "ControllerGone", "start_s": 3, "end_s": 9}]
    )
    first = run_seed(simulation, 7)
    assert run_seed(simulation, 7) == first
    assert run_seed(simulation, 8) != first
    assert first.control is not None
    assert first.control.num_turns > 10
    assert len(first.control.lapses_s) == 1


# What cannot be


@pytest.mark.parametrize(
    ("fields", "field", "part"),
    [
        ({"workload": None}, "workload", "required without trace_file"),
        ({"workload": "azure-40"}, "workload", "expected one of azure-400, azure-4000"),
        ({"rate_per_s": None}, "rate_per_s", "swept over rates"),
        ({"rate_per_s": -1}, "rate_per_s", "expected more than 0"),
        ({"rate_scale": 2}, "rate_scale", "expected rate_per_s"),
        ({"requests": 0}, "requests", "expected at least 1"),
        ({"workload": "cnn", "trace_file": "none.csv"}, "trace_file", "none.csv"),
        ({"profile": "h100"}, "profile", "expected a file, or one of a100"),
        ({"stages": 65}, "stages", "64"),
        ({"stages": 1}, "layers_per_stage", "no room for KV"),
        ({"layers_per_stage": [32, 32]}, "layers_per_stage", "expected 4 entries"),
        ({"layers_per_stage": [16, 16, 16, 15]}, "layers_per_stage", "sums up to 63"),
        ({"tensor_parallel": 0}, "tensor_parallel", "expected at least 1"),
        ({"policy": "Best"}, "policy", "expected one of Controlled, Static"),
        ({"polcy": "Static"}, "polcy", "did you mean policy"),
        ({"targets": {"tpot_ms": None}}, "targets.tpot_ms", "Predictive follows both"),
        ({"targets": {"percentile": 40}}, "targets.percentile", "expected at least 50"),
        ({"chunks": {"static_tokens": 64}}, "chunks.static_tokens", "from min_tokens, 128"),
        ({"chunks": {"min_tokens": 4096}}, "chunks.min_tokens", "at most max_tokens"),
        ({"order": "Triage"}, "order", "Paced has it"),
        ({"policy": "Static", "order": "Ageing"}, "order", "Static has its own"),
        ({"holding": "Auto"}, "holding", "controller's choice"),
        ({"policy": "Static", "holding": "TpotFirst"}, "holding", "Static has its own"),
        ({"control": {}}, "control", "use Controlled"),
        ({"timing": "LockStep", "slots": 5}, "slots", "expected 4"),
        ({"workers": 2}, "workers", "only Interleaved"),
        ({"timing": "Interleaved", "workers": 3}, "workers", "a divisor of 4"),
        ({"seeds": []}, "seeds", "expected at least 1"),
        ({"faults": [{"kind": "Fire"}]}, "faults[0].kind", "expected one of StageSlowed"),
        (
            {"faults": [{"kind": "StageLost", "at_s": 1, "down_s": 1}]},
            "faults[0].stage_index",
            "required for StageLost",
        ),
        (
            {"faults": [{"kind": "StageLost", "at_s": 1, "down_s": 1, "stage_index": 4}]},
            "faults[0].stage_index",
            "expected below 4",
        ),
        (
            {"faults": [{"kind": "RecordsLost", "start_s": 1, "end_s": 2}]},
            "faults[0].kind",
            "expected the policy Controlled",
        ),
        (
            {"policy": "Controlled", "faults": [{"kind": "RecordsLost", "start_s": 2, "end_s": 1}]},
            "faults[0]",
            "start_s < end_s",
        ),
        (
            {
                "policy": "Controlled",
                "faults": [{"kind": "RecordsLost", "start_s": 1, "end_s": 2, "factor": 3}],
            },
            "faults[0].factor",
            "RecordsLost has no such field",
        ),
        (
            {"policy": "Controlled", "control": {"delay_s": 1.5}},
            "control.delay_s",
            "expected at most 0.9",
        ),
        (
            {
                "policy": "Controlled",
                "control": {"edits": [{"at_s": 2, "targets": {}}, {"at_s": 1, "targets": {}}]},
            },
            "control.edits",
            "the order of time",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_named_by_its_field(
    fields: dict[str, Any], field: str, part: str
) -> None:
    document = {name: value for name, value in {**SMALL, **fields}.items() if value is not None}
    found = faults_of(document)
    assert set(found) == {field}
    assert part in found[field]


def test_all_that_is_wrong_is_said_at_once() -> None:
    found = faults_of({"profile": "x", "workload": "y", "timing": "LockStep", "slots": 3})
    assert set(found) == {"profile", "workload", "slots"}


def test_the_file_on_the_page_is_a_description() -> None:
    page = (Path(__file__).parents[4] / "docs" / "simulate.md").read_text()
    text = page.partition("```yaml\n")[2].partition("```")[0]
    (document,) = read_documents(text).documents
    assert isinstance(document.value, dict)
    description = describe({**document.value, "trace_file": None})
    assert set(document.value) == set(type(description).model_fields) - {"rate_scale", "workers"}
    assert len(build(description).scenario.faults) == 4
