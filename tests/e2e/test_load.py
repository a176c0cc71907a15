"""`pserve load` as a process against a server with real stages."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_server import PATIENCE_S, EngineServer
from pipelineserve import metrics
from served_model import ServedModel
from tiny_models import VOCABULARY_SIZE

NUM_STAGES = 2


@pytest.fixture(scope="module")
def server(served_model: ServedModel) -> Iterator[EngineServer]:
    """Two stages."""
    with EngineServer(served_model.folder, f"--stages={NUM_STAGES}") as running:
        yield running.wait_serving()


def start(server: EngineServer, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pipelineserve_cli.main", "load", f"--url={server.url}"]
    command += [f"--vocabulary={VOCABULARY_SIZE}", "--output-tokens=12", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def load(server: EngineServer, *arguments: str, status: int = 0) -> str:
    """What it prints on stdout."""
    with start(server, *arguments) as process:
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == status, errors
        return output


def test_every_request_is_answered_and_counted_as_the_server_does(
    server: EngineServer, tmp_path: Path
) -> None:
    before = server.metrics()
    path = tmp_path / "records.json"
    output = load(
        *(server, "--requests=15", "--warm-up=2", "--rate=20", "--input-tokens=uniform:5,90"),
        *("--ttft-ms=60000", "--tpot-ms=60000", "--json", f"--output={path}"),
    )
    report: dict[str, Any] = json.loads(output)
    whole = report["whole_run"]
    assert (whole["num_sent"], whole["num_finished"], whole["failures"]) == (15, 15, {})
    assert whole["attainment"]["ratio"] == 1.0
    assert report["conditions"]["model"] == "org/served"
    assert len(report["bubble_ratios"]) == NUM_STAGES
    assert all(0 <= ratio <= 1 for ratio in report["bubble_ratios"])
    records = json.loads(path.read_text())["requests"]
    assert [record["output_tokens"] for record in records] == [12] * 17
    after = server.metrics()
    for metric, tokens in (
        (metrics.OUTPUT_TOKENS, 17 * 12),
        (metrics.PROMPT_TOKENS, sum(record["prompt_tokens"] for record in records)),
    ):
        assert after.value(metric) - before.value(metric) == tokens


def test_the_clients_figures_and_the_servers_agree(served_model: ServedModel) -> None:
    """A queue makes times long enough to be compared; a client can only see what has happened."""
    flags = (f"--stages={NUM_STAGES}", "--max-running-requests=2", "--static-chunk-tokens=16")
    with EngineServer(served_model.folder, *flags) as server:
        server.wait_serving()
        arguments = ("--requests=24", "--rate=500", "--output-tokens=40", "--input-tokens=60")
        report = json.loads(load(server, *arguments, "--json"))
        counted = server.wait_metrics(lambda now: now.value(metrics.REQUESTS_RUNNING) == 0)
    whole = report["whole_run"]
    assert whole["num_finished"] == 24
    for name, metric in (
        ("ttft_s", metrics.TTFT),
        ("tpot_s", metrics.TPOT),
        ("e2e_s", metrics.E2E),
    ):
        assert counted.count(metric) == 24
        ours = counted.total(metric) / 24
        theirs = whole[name]["mean"]
        assert theirs == pytest.approx(ours, rel=0.25), name
    for name, metric in (("ttft_s", metrics.TTFT), ("e2e_s", metrics.E2E)):
        assert whole[name]["mean"] >= counted.total(metric) / 24


def test_chats_are_reported_as_a_table_and_nothing_else(server: EngineServer) -> None:
    output = load(server, "--requests=4", "--rate=20", "--endpoint=chat", "--input-tokens=9")
    assert "Whole run" in output
    assert "bubble, stage 1" in output
    assert "4 sent, 4 finished, 0 failed" in output


def test_what_the_server_refuses_is_reported_with_its_reason(server: EngineServer) -> None:
    output = load(server, "--requests=3", "--rate=50", "--input-tokens=5000", "--json", status=1)
    report = json.loads(output)
    assert report["whole_run"]["failures"] == {"4xx refused": 3}
    assert "context" in report["notes"][0]


def test_an_interrupted_load_prints_what_was_done(server: EngineServer) -> None:
    arguments = ("--arrivals=constant", "--rate=5", "--requests=10000", "--json")
    before = server.metrics().count(metrics.E2E)
    with start(server, *arguments) as process:
        server.wait_metrics(lambda samples: samples.count(metrics.E2E) >= before + 3)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    report = json.loads(output)
    assert report["is_interrupted"]
    assert 3 <= report["whole_run"]["num_finished"] == report["whole_run"]["num_sent"] < 10_000
