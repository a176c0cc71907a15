"""Figures are kept under what they depend on, and come back as they were."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.errors import InvalidInputError
from pipelineserve_simulator.reproduce.figures import PAPER_TARGETS, STRICT_TPOT
from pipelineserve_simulator.reproduce.fingerprint import code_fingerprint
from pipelineserve_simulator.reproduce.forecast import stand_in
from pipelineserve_simulator.reproduce.store import FigureStore
from pipelineserve_simulator.reproduce.systems import GREEDY, PREDICTIVE, ModelName, static
from pipelineserve_simulator.reproduce.traces import Source, TraceFile
from pipelineserve_simulator.reproduce.trials import Load, Trial, make_trial
from pipelineserve_simulator.workloads.registry import WorkloadName

LOAD = Load(WorkloadName.AZURE_400, 4.0)
TRIAL = make_trial(ModelName.QWEN_32B, PREDICTIVE, LOAD, 1)
OTHERS = (
    replace(TRIAL, seed=2),
    replace(TRIAL, model=ModelName.QWEN_14B),
    replace(TRIAL, system=GREEDY),
    replace(TRIAL, load=LOAD.at(4.1)),
    replace(TRIAL, load=replace(LOAD, num_requests=100)),
    replace(TRIAL, targets=STRICT_TPOT),
    replace(TRIAL, watches_predictor=True),
)


def test_what_is_kept_comes_back_in_another_process(tmp_path: Path) -> None:
    figures = stand_in(TRIAL)
    FigureStore(tmp_path, None).keep(TRIAL, figures)
    assert FigureStore(tmp_path, None).find(TRIAL) == figures


def test_a_file_says_what_its_figures_are_of(tmp_path: Path) -> None:
    FigureStore(tmp_path, None).keep(TRIAL, stand_in(TRIAL))
    (path,) = (tmp_path / "trials").iterdir()
    trial = json.loads(path.read_text())["trial"]
    assert trial["system"]["rules"] == "FastppPredictive"
    assert trial["load"] == {
        "name": "azure-400",
        "rate_per_s": 4.0,
        "num_requests": None,
        "source": "fitted",
    }


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_another_trial_has_another_name(tmp_path: Path, other: Trial) -> None:
    store = FigureStore(tmp_path, None)
    store.keep(TRIAL, stand_in(TRIAL))
    assert store.find(other) is None


def test_other_code_and_another_trace_give_other_names() -> None:
    traced = replace(TRIAL, load=replace(LOAD, source=Source.ROWS))
    trace, other = TraceFile(Path("a"), "1"), TraceFile(Path("a"), "2")
    assert TRIAL.key("code", None) != TRIAL.key("other code", None)
    assert traced.key("code", trace) != traced.key("code", other)
    assert TRIAL.key("code", trace) == TRIAL.key("code", None)


@given(st.integers(0, 600))
def test_a_file_that_was_cut_off_counts_as_missing_and_is_replaced(
    tmp_path_factory: pytest.TempPathFactory, num_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    FigureStore(folder, None).keep(TRIAL, stand_in(TRIAL))
    (path,) = (folder / "trials").iterdir()
    path.write_bytes(path.read_bytes()[:num_bytes])
    store = FigureStore(folder, None)
    assert store.find(TRIAL) is None
    store.keep(TRIAL, stand_in(TRIAL))
    assert FigureStore(folder, None).find(TRIAL) == stand_in(TRIAL)


def test_a_place_where_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InvalidInputError, match="--out"):
        FigureStore(file, None)


def test_systems_that_go_by_no_target_share_their_trials() -> None:
    fixed, law = (
        make_trial(ModelName.QWEN_32B, system, LOAD, 1, STRICT_TPOT)
        for system in (static(512), PREDICTIVE)
    )
    assert fixed.targets == PAPER_TARGETS
    assert law.targets == STRICT_TPOT


def test_the_fingerprint_is_that_of_the_code() -> None:
    assert code_fingerprint() == code_fingerprint()
    assert len(code_fingerprint()) == 64
