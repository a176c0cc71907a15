"""Chunk policies on the real engine under a mixed load: static, ours and FastPP's, interleaved.

    python -m bench.control [--seeds 3] [--duration-s 40] [--plots FOLDER] [--json]

Short chats arrive all the time and decode; bursts of long prompts come down on them. Three servers
run on the same cores, of which one at a time has work: ours with its sidecar, which goes from one
policy to the next by edits of its manifest; and ours under each of FastPP's two laws, which have
the released constants with another unit of tokens and a table measured as their authors do. The
best static chunk is found first, by another seed, over sizes a factor of 1.3 to 2 apart. All wait
in order of arrival, as FastPP's scheduler has it; ours once more with the order that it would have.
Latencies are those of the client, bubbles and chunks those of the engine's step records. A request
attains if it meets both targets. Run it on an idle machine.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.control.contestants import (
    SERVED_NAME,
    Engine,
    Product,
    Sizes,
    fastpp,
    model_folder,
    product,
)
from bench.control.fastpp_server import LawKind
from bench.control.figures import Figures, Run, figures_of, print_table
from bench.control.load import MixedLoad
from bench.control.plots import plot_chunks, plot_latencies
from bench.control.prediction import PredictionErrors, prediction_errors
from bench.control.step_times import measure_step_times
from bench.control.watching import SeenStep, steps_of
from bench.engine import DEFAULT_MODEL
from bench.environments import say
from bench.server_processes import cpu_s_of_machine

from pipelineserve_cli.load.bodies import BodySettings, Endpoint
from pipelineserve_cli.load.client import ClientSettings, LoadClient
from pipelineserve_cli.load.run import LoadRun
from pipelineserve_engine.model_config import load_config

_LOAD_TIMEOUT_S = 300.0
_STATIC_GRID = (16, 32, 48, 64, 96, 128, 192, 256)
_TUNING_SEED = 1000
_LEARNING_SEED = 2000


@dataclass(frozen=True)
class Contestant:
    """One policy: which engine it runs on, and how it is put in force there."""

    name: str
    engine: Engine
    begin: Callable[[], None] = lambda: None


class Bench:
    """Runs the load against contestants."""

    def __init__(self, folder: Path, sizes: Sizes, load: MixedLoad) -> None:
        self._sizes = sizes
        self._load = load
        self._bodies = BodySettings(
            SERVED_NAME,
            Endpoint.COMPLETIONS,
            ignores_eos=True,
            vocabulary_size=load_config(folder).vocab_size,
        )

    def run(self, contestant: Contestant, seed: int, duration_s: float | None = None) -> Run:
        """One run, to the end of its last request."""
        contestant.begin()
        load = self._load if duration_s is None else replace(self._load, duration_s=duration_s)
        client = LoadClient(
            ClientSettings(
                contestant.engine.url, Endpoint.COMPLETIONS.path, timeout_s=_LOAD_TIMEOUT_S
            ),
            time.monotonic,
        )
        plan = load.plan(seed, f"{contestant.name}, {seed}")
        run = LoadRun(plan, self._bodies, client, drain_s=_LOAD_TIMEOUT_S, clock=time.monotonic)
        before_s = cpu_s_of_machine()
        with steps_of(contestant.engine.control_address) as steps:
            begin_s = time.monotonic()
            result = asyncio.run(run.run())
            time.sleep(0.5)  # until the last records are here
        measured = Run(contestant.name, seed, begin_s, result.records, tuple(steps))
        figures = self.figures(contestant.name, [measured])
        say(
            f"seed {seed}, {contestant.name}: {figures.attainment.ratio:.0%} attained, TTFT P90 "
            f"{figures.ttft.p90:.2f} s, TPOT P90 {figures.tpot.p90:.3f} s; "
            f"{cpu_s_of_machine() - before_s:.0f} s of CPU; chunks {reasons_of(measured)}"
        )
        return measured

    def figures(self, name: str, runs: Sequence[Run]) -> Figures:
        """See `figures_of`."""
        return figures_of(name, runs, self._sizes.ttft_target_s, self._sizes.tpot_target_s)

    def tuned_static(self, ours: Product, duration_s: float) -> int:
        """The static chunk that attains most, the one with the lower P90 of TPOT among equals."""
        best = (-1.0, 0.0, 0)
        for tokens in _STATIC_GRID:
            contestant = Contestant(f"static {tokens}", ours.engine, using(ours, "Static", tokens))
            figures = self.figures(
                contestant.name, [self.run(contestant, _TUNING_SEED, duration_s)]
            )
            best = max(best, (figures.attainment.ratio, -figures.tpot.p90, tokens))
        return best[-1]


def reasons_of(run: Run) -> str:
    """Median chunk of each of the most frequent reasons, with its share of the micro-batches."""
    chunks: dict[str, list[int]] = {}
    for step in run.steps:
        chunks.setdefault(step.record.chunk_reason, []).append(step.record.chunk_tokens)
    most_frequent = sorted(chunks.items(), key=lambda entry: -len(entry[1]))[:4]
    return ", ".join(
        f"{reason} {statistics.median(sizes):.0f} ({len(sizes) / len(run.steps):.0%})"
        for reason, sizes in most_frequent
    )


def using(
    ours: Product, policy: str, static_tokens: int | None = None, order: str = "Arrival"
) -> Callable[[], None]:
    """An edit of the manifest, to be made when its turn has come."""
    return lambda: ours.use(policy, static_tokens, order)


@contextmanager
def contestants(
    bench: Bench, folder: Path, sizes: Sizes, *, work: Path, tuning_s: float, static_tokens: int
) -> Iterator[list[Contestant]]:
    """All of them, each ready for the load."""
    say("measuring step times for FastPP's table")
    times_s = measure_step_times(folder, sizes.stages, sizes.chunk_sizes)
    table = ", ".join(
        f"{size}: {1000 * time_s:.0f}"
        for size, time_s in zip(sizes.chunk_sizes, times_s, strict=True)
    )
    say(f"ms by tokens: {table}")
    with ExitStack() as stack:
        ours = stack.enter_context(product(folder, sizes, work))
        theirs = [
            Contestant(kind.value, stack.enter_context(fastpp(kind, times_s, folder, sizes, work)))
            for kind in LawKind
        ]
        tuned = static_tokens or bench.tuned_static(ours, tuning_s)
        say(f"best static chunk: {tuned}")
        for contestant in (Contestant("learning", ours.engine, using(ours, "Predictive")), *theirs):
            bench.run(contestant, _LEARNING_SEED, tuning_s)
        state = ours.state()
        model = {name: state["model"][name] for name in ("feedback_ratio", "spread_ratio")}
        say(f"after the learning run {state['chunk']['in_use']} is in use; {model}")
        statics = [
            (f"static {tokens}", tokens)
            for tokens in sorted({sizes.min_tokens * 2, tuned, sizes.max_tokens})
        ]
        yield [
            *(Contestant(name, ours.engine, using(ours, "Static", t)) for name, t in statics),
            Contestant("Greedy", ours.engine, using(ours, "Greedy", tuned)),
            Contestant("Predictive", ours.engine, using(ours, "Predictive", tuned)),
            Contestant(
                "Predictive, Ageing", ours.engine, using(ours, "Predictive", tuned, "Ageing")
            ),
            *theirs,
        ]


def measure(bench: Bench, entered: Sequence[Contestant], num_seeds: int) -> list[Run]:
    """Every contestant with every seed; each seed begins with another one."""
    runs = []
    for seed in range(1, num_seeds + 1):
        turn = (seed - 1) % len(entered)
        runs += [bench.run(contestant, seed) for contestant in (*entered[turn:], *entered[:turn])]
    return runs


def prediction_of(runs: Sequence[Run]) -> PredictionErrors:
    """Learn from our own runs of all seeds but the last, and predict the last's."""
    last = max(run.seed for run in runs)

    def steps(*, is_last: bool) -> list[SeenStep]:
        return [step for run in runs if (run.seed == last) is is_last for step in run.steps]

    return prediction_errors(steps(is_last=False), steps(is_last=True))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--duration-s", type=float, default=40.0)
    parser.add_argument("--tuning-s", type=float, default=20.0, help="of each run before")
    parser.add_argument("--chats-per-s", type=float, default=MixedLoad.chats_per_s)
    parser.add_argument("--burst-prompts", type=int, default=MixedLoad.burst_prompts)
    parser.add_argument("--ttft-s", type=float, default=Sizes.ttft_target_s, help="target")
    parser.add_argument("--tpot-s", type=float, default=Sizes.tpot_target_s, help="target")
    parser.add_argument("--static-tokens", type=int, default=0, help="instead of tuning")
    parser.add_argument("--only", default="", help="names of contestants, with commas between")
    parser.add_argument("--plots", type=Path, help="folder for two PNG files")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = model_folder(options.model)
    sizes = Sizes(ttft_target_s=options.ttft_s, tpot_target_s=options.tpot_s)
    load = MixedLoad(
        options.duration_s, chats_per_s=options.chats_per_s, burst_prompts=options.burst_prompts
    )
    bench = Bench(folder, sizes, load)
    with (
        tempfile.TemporaryDirectory(prefix="control-") as work,
        contestants(
            bench,
            folder,
            sizes,
            work=Path(work),
            tuning_s=options.tuning_s,
            static_tokens=options.static_tokens,
        ) as all_contestants,
    ):
        wanted = options.only.split(",")
        entered = [c for c in all_contestants if c.name in wanted or not options.only]
        runs = measure(bench, entered, options.seeds)
    names = [contestant.name for contestant in entered]
    by_name = {name: [run for run in runs if run.contestant == name] for name in names}
    all_figures = [bench.figures(name, by_name[name]) for name in names]
    ours = [run for run in runs if not run.contestant.startswith("Fastpp")]
    errors = prediction_of(ours) if options.seeds > 1 else None
    if options.plots:
        options.plots.mkdir(parents=True, exist_ok=True)
        targets = (sizes.ttft_target_s, sizes.tpot_target_s)
        plot_latencies(options.plots / "control-latencies.png", all_figures, *targets)
        first = [by_name[name][0] for name in names]
        plot_chunks(options.plots / "control-chunks.png", first, load.long.prompt_tokens)
    if options.json:
        results = [asdict(figures) for figures in all_figures]
        print(json.dumps({"figures": results, "prediction": errors and asdict(errors)}, indent=2))
    else:
        print_table(all_figures)
        if errors is not None:
            print_errors(errors)
    return 0


def print_errors(errors: PredictionErrors) -> None:
    """In one line."""
    shares = (errors.linear, errors.table, errors.full, errors.following, errors.following_median)
    texts = [f"{share:.1%}" for share in shares]
    print(
        f"step times, {errors.num_judged} predicted after {errors.num_learned}: mean error "
        f"{texts[0]} by a line over tokens, {texts[1]} by the table, {texts[2]} with attention, "
        f"{texts[3]} following (median {texts[4]})"
    )


if __name__ == "__main__":
    sys.exit(main())
