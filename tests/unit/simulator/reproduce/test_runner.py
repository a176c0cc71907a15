"""Experiments conclude, nothing is computed twice, and an interrupted run goes on."""

import multiprocessing
from concurrent.futures import Future
from pathlib import Path

import pytest

from pipelineserve_simulator.reproduce.experiments import Experiment
from pipelineserve_simulator.reproduce.figures import TrialFigures
from pipelineserve_simulator.reproduce.findings import RowResult, Verdict
from pipelineserve_simulator.reproduce.fingerprint import code_fingerprint
from pipelineserve_simulator.reproduce.report.acceptance import ReportFacts
from pipelineserve_simulator.reproduce.report.page import report_page
from pipelineserve_simulator.reproduce.runner import Run, TrialPool, open_pool
from pipelineserve_simulator.reproduce.store import FigureStore
from pipelineserve_simulator.reproduce.study import Study
from pipelineserve_simulator.reproduce.systems import ModelName, static
from pipelineserve_simulator.reproduce.trials import make_trial, run_trial
from reproduction import EFFORT, TINY_LOAD, InlinePool, Updates, tiny_row

EXPERIMENTS = (Experiment("tiny", tiny_row),)


def conclude(
    folder: Path, pool: TrialPool, progress: Updates | None = None
) -> tuple[RowResult, ...]:
    store = FigureStore(folder, None)
    study = Study(EFFORT, store.find)
    return Run(study, store, pool, progress or Updates()).conclude(EXPERIMENTS)


def kept(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "trials").iterdir()}


def page(results: tuple[RowResult, ...]) -> str:
    return report_page(results, ReportFacts(EFFORT, code_fingerprint(), ""))


def test_an_experiment_from_its_first_trial_to_the_report(tmp_path: Path) -> None:
    pool, progress = InlinePool(), Updates()
    (result,) = conclude(tmp_path, pool, progress)
    first, capacity = result.findings
    assert first.verdict is Verdict.FITS
    assert 0.05 < first.ours < 2.0
    assert 1.0 < capacity.ours < 64.0
    assert len(pool.run) == len(set(pool.run)) == len(kept(tmp_path))
    num = len(pool.run)
    assert progress.seen[-1] == (num, num, 1)
    assert "Sixteen requests" in page((result,))


def test_a_second_run_computes_nothing_and_writes_the_same_bytes(tmp_path: Path) -> None:
    first = conclude(tmp_path, InlinePool())
    files = kept(tmp_path)
    pool = InlinePool()
    second = conclude(tmp_path, pool)
    assert pool.run == []
    assert kept(tmp_path) == files
    assert page(second) == page(first)


def test_an_interrupted_run_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    whole = conclude(tmp_path / "whole", pool := InlinePool())
    with pytest.raises(KeyboardInterrupt):
        conclude(tmp_path / "cut", first := InlinePool(most=5))
    num_kept = len(kept(tmp_path / "cut"))
    assert 0 < num_kept <= len(first.run)
    resumed = conclude(tmp_path / "cut", second := InlinePool())
    assert len(second.run) == len(pool.run) - num_kept
    assert resumed == whole
    assert kept(tmp_path / "cut") == kept(tmp_path / "whole")


def test_processes_give_what_this_process_gives() -> None:
    trials = [
        make_trial(ModelName.QWEN_32B, static(512), TINY_LOAD.at(rate), 1) for rate in (1.0, 9.0)
    ]
    with open_pool(2, None) as pool:
        futures = [pool.submit(trial) for trial in trials]
        assert [future.result() for future in futures] == [run_trial(t, None) for t in trials]
    assert multiprocessing.active_children() == []


def test_no_process_outlives_an_interruption() -> None:
    trial = make_trial(ModelName.QWEN_32B, static(512), TINY_LOAD.at(1.0), 1)

    def interrupted() -> None:
        with open_pool(2, None) as pool:
            for _ in range(4):
                pool.submit(trial)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert multiprocessing.active_children() == []


def test_an_error_in_a_trial_ends_the_run_with_it(tmp_path: Path) -> None:
    class Failing:
        def submit(self, trial: object) -> "Future[TrialFigures]":
            future: Future[TrialFigures] = Future()
            future.set_exception(RuntimeError(f"no {type(trial).__name__}"))
            return future

    with pytest.raises(RuntimeError, match="no Trial"):
        conclude(tmp_path, Failing())
    assert kept(tmp_path) == {}
