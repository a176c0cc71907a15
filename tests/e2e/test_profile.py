"""`pserve profile` on real stages: a file that the twin loads, or none when it is interrupted."""

import signal
import subprocess
import sys
from pathlib import Path

from engine_server import PATIENCE_S, all_have_ended, pids_of_session
from pipelineserve_simulator.hardware.catalogue import profile_from_text
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.layouts import even_layout, kv_tokens
from pipelineserve_simulator.pipeline.loads import StepLoad
from served_model import ServedModel

KV_TOKENS = 4096


def start(served_model: ServedModel, output: Path, rounds: int) -> "subprocess.Popen[str]":
    command = [
        *(sys.executable, "-m", "pipelineserve_cli.main", "profile", str(served_model.folder)),
        *(f"--output={output}", "--chunk-tokens=12", "--context-tokens=256", f"--rounds={rounds}"),
        *("--", "--stages=2", "--threads-per-stage=1", f"--kv-tokens={KV_TOKENS}"),
    ]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_measured_profile_is_one_that_the_twin_loads(
    served_model: ServedModel, tmp_path: Path
) -> None:
    output = tmp_path / "mine.yaml"
    with start(served_model, output, rounds=1) as process:
        printed, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, told
    assert "Round 1 of 1" in told
    assert "KV pool" in printed
    profile = profile_from_text(output.read_text(), "mine.yaml")
    layout = even_layout(profile.model, 2)
    assert abs(kv_tokens(profile, layout) - KV_TOKENS) <= 1
    load = StepLoad(4, 4, 4, 4, 400, 0, 0)
    assert all(time_s > 0.0 for time_s in ProfileCosts(profile, layout).stage_times_s(load))


def test_ctrl_c_ends_the_stages_and_leaves_no_file(
    served_model: ServedModel, tmp_path: Path
) -> None:
    output = tmp_path / "mine.yaml"
    with start(served_model, output, rounds=10_000) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("Round 1 of" in line for line in lines)
        pids = pids_of_session(process.pid)
        assert len(pids) >= 4  # the command, the nursery and two stages
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert all_have_ended(pids)
    assert not output.exists()
