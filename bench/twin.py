"""How fast the twin is: simulated requests and micro-batches per second of one core.

    python bench/twin.py [--json] [--rounds 3] [--profile]

Standing loads on four slots: so many requests run at any time that each micro-batch has 16 or 128
decodes, and whoever ends makes room for the next one. The same load is run over longer and longer
traces; the cost of a micro-batch must not grow with them. CPU time, the least of several rounds
taken in turn: another process can only make a round slower. With `--profile` the busiest functions
follow.
"""

import argparse
import cProfile
import json
import pstats
from dataclasses import asdict, dataclass
from time import process_time

from pipelineserve.policy.chunking import Static
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_simulator.hardware.catalogue import load_profile
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.layouts import even_layout
from pipelineserve_simulator.hardware.noise import ProfileNoise
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.measures.runs import RunOutcome
from pipelineserve_simulator.pipeline.executor import run_pipeline
from pipelineserve_simulator.pipeline.options import PipelineOptions
from pipelineserve_simulator.workloads.requests import SimulatedRequest

NUM_SLOTS = 4
PROMPT_TOKENS = 64
OUTPUT_TOKENS = 192
BLOCK_TOKENS = 16
PROFILE = load_profile("a100-40gb-pcie/qwen2.5-14b")
PROFILED_FUNCTIONS = 30


@dataclass(frozen=True)
class Load:
    """A standing load, and how long it stands: so many times the requests that run at once."""

    decodes: int
    turnovers: int

    @property
    def num_running(self) -> int:
        """Requests that run at any time."""
        return self.decodes * NUM_SLOTS

    @property
    def num_requests(self) -> int:
        """All of the trace."""
        return self.num_running * self.turnovers


@dataclass(frozen=True)
class Speed:
    """One row: a load, and how fast it was simulated."""

    decodes: int
    num_requests: int
    num_micro_batches: int
    decodes_per_micro_batch: float
    micro_batch_us: float
    micro_batches_per_s: float
    requests_per_s: float


def simulate(load: Load) -> RunOutcome:
    """Every step kept, as figures need them."""
    tokens_each = PROMPT_TOKENS + OUTPUT_TOKENS
    sizes = SchedulerSettings(
        num_slots=NUM_SLOTS,
        max_chunk_tokens=2048,
        num_blocks=2 * load.num_running * (tokens_each // BLOCK_TOKENS + 1),
        block_tokens=BLOCK_TOKENS,
        max_context_tokens=tokens_each,
        max_waiting_requests=load.num_requests,
        max_running_requests=load.num_running,
        shares_prefixes=False,
    )
    # Room for the decodes, and for as much prompt as they need to be replaced when they end.
    chunk_tokens = load.decodes + max(8, 2 * load.decodes * PROMPT_TOKENS // OUTPUT_TOKENS)
    requests = [
        SimulatedRequest(index, 0.0, PROMPT_TOKENS, OUTPUT_TOKENS)
        for index in range(load.num_requests)
    ]
    noise = ProfileNoise(PROFILE.noise, Chance(0).stream("noise"))
    return run_pipeline(
        requests,
        Scheduler(sizes, Static(chunk_tokens)),
        ProfileCosts(PROFILE, even_layout(PROFILE.model, NUM_SLOTS)),
        PipelineOptions(noise=noise),
    )


def measure(loads: list[Load], num_rounds: int) -> list[Speed]:
    """The least CPU time of each load, rounds in turn."""
    least_s = dict.fromkeys(loads, float("inf"))
    runs: dict[Load, RunOutcome] = {}
    for _ in range(num_rounds):
        for load in loads:
            started_s = process_time()
            runs[load] = simulate(load)
            least_s[load] = min(least_s[load], process_time() - started_s)
    return [speed_of(load, runs[load], least_s[load]) for load in loads]


def speed_of(load: Load, run: RunOutcome, cpu_s: float) -> Speed:
    num_steps = len(run.steps)
    return Speed(
        decodes=load.decodes,
        num_requests=load.num_requests,
        num_micro_batches=num_steps,
        decodes_per_micro_batch=round(sum(step.num_decodes for step in run.steps) / num_steps, 1),
        micro_batch_us=round(cpu_s / num_steps * 1e6, 1),
        micro_batches_per_s=round(num_steps / cpu_s),
        requests_per_s=round(load.num_requests / cpu_s, 1),
    )


def show(speeds: list[Speed]) -> None:
    titles = f"{'decodes':>8}{'requests':>10}{'micro-batches':>15}{'µs each':>9}"
    print(f"{titles}{'micro-batches/s':>17}{'requests/s':>12}")
    for speed in speeds:
        print(
            f"{speed.decodes_per_micro_batch:>8.1f}{speed.num_requests:>10}"
            f"{speed.num_micro_batches:>15}{speed.micro_batch_us:>9.1f}"
            f"{speed.micro_batches_per_s:>17.0f}{speed.requests_per_s:>12.1f}"
        )


def profile(loads: list[Load]) -> None:
    """The functions in which the time goes."""
    for load in loads:
        profiler = cProfile.Profile()
        profiler.runcall(simulate, load)
        print(f"{load.decodes} decodes")
        pstats.Stats(profiler).sort_stats("tottime").print_stats(PROFILED_FUNCTIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=3, help="the least of so many is taken")
    parser.add_argument("--profile", action="store_true", help="print the busiest functions")
    options = parser.parse_args()
    if options.profile:
        profile([Load(16, 10), Load(128, 3)])
        return
    speeds = measure(
        [*(Load(16, turns) for turns in (5, 20, 80)), *(Load(128, turns) for turns in (2, 4, 8))],
        options.rounds,
    )
    if options.json:
        print(json.dumps([asdict(speed) for speed in speeds], indent=2))
    else:
        show(speeds)


if __name__ == "__main__":
    main()
