"""`pserve local up` with SGLang: the same manifest, page and edits; another Python for SGLang."""

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from bench.sglang_packages import CPU_ENVIRON, CPU_FLAGS

from engine_server import PATIENCE_S, all_have_ended, name_of, wait_until
from foreign_server import START_PATIENCE_S, TEST_TIMEOUT_S
from free_ports import a_free_port
from local_up import Run, local_up
from pipelineserve import metrics
from pipelineserve.counterparts import OF_SGLANG, REFRESH_S
from pipelineserve.metrics import LATENCY_BUCKETS_S, MetricKind
from pipelineserve_cli.pods.keeper import MARK
from pipelineserve_controller.cross_check import reading_of
from served_model import ServedModel
from sglang_server import sglang_python

pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S)

CHUNK_TOKENS, OTHER_CHUNK_TOKENS = 64, 96
COMPLETION = {
    "prompt": "once upon a time there was a pipeline " * 30,
    "max_tokens": 8,
    "temperature": 0,
    "ignore_eos": True,
}


@dataclass(frozen=True)
class Serving:
    """A run whose manifest may be edited."""

    run: Run
    port: int
    manifest: Path

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """An answer of the API."""
        url = f"http://127.0.0.1:{self.port}/v1/{path}"
        answer = httpx.post(url, json={"model": "tiny", **body}, timeout=PATIENCE_S)
        assert answer.status_code == httpx.codes.OK, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def complete(self) -> str:
        """A greedy answer to a prompt of several pieces."""
        text: str = self.post("completions", COMPLETION)["choices"][0]["text"]
        return text

    def stream(self) -> None:
        """The same, token by token."""
        url = f"http://127.0.0.1:{self.port}/v1/completions"
        body = {"model": "tiny", **COMPLETION, "stream": True}
        with httpx.stream("POST", url, json=body, timeout=PATIENCE_S) as answer:
            assert list(answer.iter_lines())[-2:] == ["data: [DONE]", ""]

    def metrics_text(self) -> str:
        """The engine's metrics."""
        return httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE_S).text

    def edit(self, old: str, new: str) -> None:
        """Replace a part of the manifest."""
        text = self.manifest.read_text()
        assert old in text
        self.manifest.write_text(text.replace(old, new))

    def wait_chunk(self, chunk_tokens: int) -> dict[str, Any]:
        """The state once a policy of this chunk is in force and a micro-batch was made with it."""

        def look() -> dict[str, Any]:
            self.complete()
            return self.run.state()

        return wait_until(
            look,
            lambda state: (
                state["control"]["is_effective"] and state["chunk"]["chunk_tokens"] == chunk_tokens
            ),
        )

    def sglang(self) -> dict[int, str]:
        """SGLang's processes, by pid."""
        named = {pid: name_of(pid) for pid in self.run.descendants()}
        return {pid: name for pid, name in named.items() if "sglang" in name}


@pytest.fixture(scope="module")
def serving(
    untied_model: ServedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    python = sglang_python()
    manifest = tmp_path_factory.mktemp("sglang") / "tiny.yaml"
    manifest.write_text(json.dumps(document(untied_model.folder), indent=1))
    port = a_free_port()
    with local_up(manifest, port, "-v", f"--sglang-python={python}") as run:
        run.wait_controlled(START_PATIENCE_S)
        yield Serving(run, port, manifest)
        pids = run.descendants()
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 0, run.log
        assert all_have_ended(pids)
        assert list(run.temporary_folder.iterdir()) == []
    for trace in ("made a mistake", "ended with", "the add-on is inactive"):
        assert trace not in run.log, run.log


def document(model_folder: Path) -> dict[str, Any]:
    engine = {
        "type": "SGLang",
        "maxChunkTokens": 256,
        "args": [*CPU_FLAGS, "--max-running-requests=32", "--max-total-tokens=8192"],
        "env": [{"name": name, "value": value} for name, value in CPU_ENVIRON.items()],
    }
    return {
        "apiVersion": "pipelineserve.dev/v1alpha1",
        "kind": "PipelineServe",
        "metadata": {"name": "tiny"},
        "spec": {
            "model": {"uri": f"file://{model_folder}", "dtype": "Float32"},
            "engine": engine,
            "parallelism": {"stages": 2},
            "slo": {"ttft": {"milliseconds": 1000}, "tpot": {"milliseconds": 100}},
            "chunking": {"policy": "Static", "staticTokens": CHUNK_TOKENS},
        },
    }


def test_it_serves_what_the_reference_says(serving: Serving, untied_model: ServedModel) -> None:
    message = {"role": "user", "content": "What is the capital?"}
    body = {"messages": [message], "max_tokens": 12, "temperature": 0}
    answer = serving.post("chat/completions", body)
    expected = untied_model.greedy(untied_model.chat_prompt(message["content"]), 12)
    assert answer["choices"][0]["message"]["content"] == expected.text
    state = serving.run.state()
    assert state["engine"]["name"] == "sglang"
    assert state["engine"]["inactive_reason"] == ""
    assert {"chunk", "predictive", "hold"} == set(state["engine"]["capabilities"])


def test_edits_are_obeyed_by_the_same_processes_and_a_bad_one_is_refused(
    serving: Serving,
) -> None:
    first = serving.wait_chunk(CHUNK_TOKENS)
    text, processes = serving.complete(), serving.sglang()
    assert {"sglang::schedul", "sglang::detoken"} <= set(processes.values()), processes
    # By it they are found, whatever ends the run.
    assert all(MARK in Path(f"/proc/{pid}/environ").read_text() for pid in processes)
    generation = first["control"]["generation"]
    serving.edit(f'"staticTokens": {CHUNK_TOKENS}', f'"staticTokens": {OTHER_CHUNK_TOKENS}')
    changed = serving.wait_chunk(OTHER_CHUNK_TOKENS)
    assert changed["control"]["generation"] == generation + 1
    serving.edit(f'"staticTokens": {OTHER_CHUNK_TOKENS}', '"staticTokens": "many"')
    serving.run.wait_said("edit refused, the earlier targets stay")
    assert "spec.chunking.staticTokens" in serving.run.log
    kept = serving.wait_chunk(OTHER_CHUNK_TOKENS)
    assert kept["control"]["generation"] == generation + 1
    serving.edit('"staticTokens": "many"', f'"staticTokens": {CHUNK_TOKENS}')
    serving.wait_chunk(CHUNK_TOKENS)
    assert serving.complete() == text
    assert serving.sglang() == processes


def test_answers_to_probes_are_nobodys_requests(serving: Serving) -> None:
    serving.complete()
    state = wait_until(serving.run.state, lambda state: bool(state["ttft"]["num_requests"]))
    # SGLang leaves them out of its own count too.
    counted = sum_of(serving.metrics_text(), "sglang:num_requests_total")
    assert state["ttft"]["num_requests"] <= counted


def test_its_metrics_are_those_of_the_table(serving: Serving) -> None:
    # The same prompt again, so that the prefix cache has had something to give; SGLang sees gaps
    # in streams only.
    serving.complete()
    serving.stream()
    text = wait_until(
        serving.metrics_text,
        lambda text: "sglang:cached_tokens_total{" in text,
    )
    missing = [
        theirs
        for counterpart in OF_SGLANG
        for _, theirs in counterpart.series
        if f"\n{theirs}{{" not in text
    ]
    assert missing == []
    reading = reading_of(text)
    assert reading.age_s == REFRESH_S
    assert set(reading.figures) == {
        metrics.REQUESTS_WAITING.name,
        metrics.KV_USED.name,
        f"{metrics.TPOT.name}_count",
    }
    for counterpart in OF_SGLANG:
        bounds = bounds_in(text, counterpart.family)
        if counterpart.metric.kind is MetricKind.HISTOGRAM and not counterpart.labels:
            assert bounds == [*LATENCY_BUCKETS_S, float("inf")], counterpart.family


def bounds_in(text: str, family: str) -> list[float]:
    """Upper bounds of a histogram's buckets, in order."""
    lines = [line for line in text.splitlines() if line.startswith(f"{family}_bucket{{")]
    return sorted({float(line.partition('le="')[2].partition('"')[0]) for line in lines})


def sum_of(text: str, name: str) -> float:
    """Of all series of a name."""
    lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)
