"""`pserve local up` runs rendered pods: killed parts come back, groups of several pods serve."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tools.sources import ROOT

from engine_server import PATIENCE_S, all_have_ended, name_of, wait_until
from free_ports import a_free_port
from local_up import Run, local_up, parent_of, write_manifest
from pipelineserve_engine.nursery.tending import STAGE_NAME
from served_model import ServedModel

NUM_TOKENS = 300
ONE_STAGE_PER_POD = "parallelism: {stages: 2, stagesPerPod: 1}"


@pytest.fixture
def spread(served_model: ServedModel, tmp_path: Path) -> Path:
    """Two stages in two pods."""
    manifest = write_manifest(tmp_path, served_model.folder, stages=2)
    text = manifest.read_text()
    manifest.write_text(text.replace("parallelism: {stages: 2}", ONE_STAGE_PER_POD))
    return manifest


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def complete(port: int, num_tokens: int = NUM_TOKENS) -> str:
    """A greedy answer, streamed."""
    body = {
        "model": "tiny",
        "prompt": "once upon a time",
        "max_tokens": num_tokens,
        "temperature": 0,
        "stream": True,
    }
    url = f"http://127.0.0.1:{port}/v1/completions"
    with httpx.stream("POST", url, json=body, timeout=PATIENCE_S) as answer:
        assert answer.status_code == httpx.codes.OK
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


def commands(run: Run) -> dict[int, str]:
    """Of the processes below it, by pid."""
    found = {}
    for pid in run.descendants():
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has ended meanwhile
    return found


def only(run: Run, part: str) -> int:
    """The process with this in its command; what it has forked has the same command."""
    found = [pid for pid, command in commands(run).items() if part in command]
    (pid,) = [pid for pid in found if parent_of(pid) not in found]
    return pid


def stages(run: Run) -> list[int]:
    return [pid for pid in run.descendants() if STAGE_NAME in name_of(pid)]


def some_tokens(port: int, num_tokens: int) -> None:
    """Return when the engine has made so many."""

    def made() -> float:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        values = [
            line for line in text.splitlines() if line.startswith("pipelineserve_output_tokens")
        ]
        return sum(float(line.rpartition(" ")[2]) for line in values)

    wait_until(made, lambda total: total >= num_tokens)


def start_streams(threads: ThreadPoolExecutor, port: int, after: int) -> list[Future[str]]:
    """Two answers under way."""
    streams = [threads.submit(complete, port) for _ in range(2)]
    some_tokens(port, after + 50)
    return streams


def test_a_group_of_two_pods_serves_and_a_killed_worker_pod_costs_time_only(
    spread: Path, threads: ThreadPoolExecutor, served_model: ServedModel
) -> None:
    port = a_free_port()
    with local_up(spread, port, "-v") as run:
        run.wait_controlled()
        prompt = served_model.codec.encode_prompt("once upon a time")
        undisturbed = served_model.greedy(prompt, NUM_TOKENS, continues_text=True).text
        assert complete(port) == undisturbed
        assert len(stages(run)) == 2
        streams = start_streams(threads, port, after=NUM_TOKENS)
        # The worker pod's only container, with its nursery and its stage.
        worker = only(run, "--host-index=1")
        os.kill(worker, signal.SIGKILL)
        assert [stream.result(PATIENCE_S) for stream in streams] == [undisturbed] * 2
        run.wait_said("tiny-r0-e0-w-1/stage-0 ended with -9; started again")
        assert complete(port) == undisturbed
        pids = run.descendants()
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 0, run.log
        assert all_have_ended(pids)
        assert list(run.temporary_folder.iterdir()) == []
    assert "tiny-r0-e0-0/engine: " in run.log
    assert "Traceback" not in run.log


def test_a_killed_stage_engine_and_controller_come_back(
    served_model: ServedModel, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    port = a_free_port()
    manifest = write_manifest(tmp_path, served_model.folder, stages=2)
    with local_up(manifest, port) as run:
        run.wait_controlled()
        undisturbed = complete(port)
        streams = start_streams(threads, port, after=NUM_TOKENS)
        os.kill(stages(run)[1], signal.SIGKILL)
        assert [stream.result(PATIENCE_S) for stream in streams] == [undisturbed] * 2
        wait_until(lambda: connected(run), bool)
        os.kill(only(run, "pipelineserve_controller.supervisor"), signal.SIGKILL)
        run.wait_said("tiny-r0-e0-0/controller ended with -9; started again")
        wait_until(lambda: connected(run), bool)
        assert complete(port) == undisturbed
        os.kill(only(run, "pipelineserve_engine.server"), signal.SIGKILL)
        run.wait_said("tiny-r0-e0-0/engine ended with -9; started again")
        run.wait_serving(port)
        assert complete(port) == undisturbed
        wait_until(lambda: connected(run), bool)
        # It has what it learned from its journal, which lives as long as the pod.
        journals = list(run.temporary_folder.glob("pserve-*/0/journal/journal/*"))
        assert journals


def connected(run: Run) -> bool:
    try:
        return bool(run.state()["connection"]["is_connected"])
    except httpx.TransportError:
        return False


def test_two_runs_of_one_manifest_do_not_meet(spread: Path) -> None:
    ports = a_free_port(), a_free_port()
    with local_up(spread, ports[0]) as one, local_up(spread, ports[1]) as other:
        for run, port in ((one, ports[0]), (other, ports[1])):
            run.wait_serving(port)
        assert complete(ports[0], 20) == complete(ports[1], 20)


@pytest.mark.timeout(600)
def test_the_example_of_two_pods_is_served() -> None:
    port = a_free_port()
    with local_up(ROOT / "examples" / "two-pods.yaml", port) as run:
        run.wait_serving(port)
        body: dict[str, Any] = {
            "model": "smollm2-135m",
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 16,
            "temperature": 0,
        }
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        answer = httpx.post(url, json=body, timeout=PATIENCE_S).json()
        assert "Paris" in answer["choices"][0]["message"]["content"]
        assert len(stages(run)) == 2
    assert "note: spec.replicas: local mode runs one, got 2" in run.log.replace("\n", " ")
