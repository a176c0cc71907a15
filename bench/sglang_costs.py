"""The add-on's cost per micro-batch and in tokens per second, mode by mode; see `bench.sglang`."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from statistics import median

import grpc
from bench.control.contestants import SERVED_NAME, Engine
from bench.environments import ToolError, say
from bench.server_processes import cpu_s_of_other_threads, titles_below
from bench.sglang_probe import HOOKS, Costs, read_costs
from bench.sglang_servers import Setup, sglang

from pipelineserve.load.prompts import SyntheticBlock, SyntheticPrompt
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.policy.step_time import StepTimeModel, StepTimeTable
from pipelineserve.wire.policies import encode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve.wire.v1.scheduler_pb2_grpc import SchedulerControlStub
from pipelineserve_cli.load.bodies import BodySettings, Endpoint
from pipelineserve_cli.load.client import ClientSettings, LoadClient
from pipelineserve_cli.load.plan import Bound, LoadPlan, PlannedRequest
from pipelineserve_cli.load.run import LoadRun
from pipelineserve_engine.model_config import load_config

# Prompt and output tokens of each request of the load; all start together.
LOAD = ((64, 256),) * 10 + ((512, 16),) * 4
_TIMEOUT_S = 600.0
# The longest and the shortest that the contract allows.
_LEASE_S, _LEAST_LEASE_S = 300.0, 0.05
# Five decodes, which each of two slots has of ten streams, cost as much as eight: one is held.
_STAIRS = StepTimeModel(StepTimeTable((1, 4, 5, 8, 9, 256), (0.01, 0.01, 0.02, 0.02, 0.03, 0.2)))
_BOUNDARIES = (4, 8)


class Mode(Enum):
    """What the add-on does meanwhile."""

    ABSENT = "no add-on"
    IDLE = "nobody calls"
    WATCHED = "Predictive, watched"
    HOLDING = "and holding"


@dataclass(frozen=True)
class Sample:
    """One load in one mode.

    Attributes:
        hook_s: CPU time of stage 0's scheduling thread in each hook, per micro-batch.
        hooks_ratio: in all of them, per second of the load.
        other_ranks_ratio: the same of the rank, among the others, that has the most.
        threads_ratio: CPU time of stage 0's other threads per second of the load.
        num_held: most decodes that were held at once.
    """

    tokens_per_s: float
    hook_s: dict[str, float]
    hooks_ratio: float
    other_ranks_ratio: float
    threads_ratio: float
    num_held: int


@dataclass(frozen=True)
class Range:
    """Over rounds."""

    median: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Figures:
    """One mode over all rounds; see `Sample`.

    Attributes:
        speed_ratio: tokens per second over those without the add-on in the same round.
        hooks_s: per micro-batch, of stage 0's scheduling thread.
        parts_s: the same by what the hooks do.
    """

    mode: str
    tokens_per_s: Range
    speed_ratio: Range
    hooks_s: Range
    parts_s: dict[str, float]
    hooks_ratio: Range
    other_ranks_ratio: Range
    threads_ratio: Range
    num_held: int


class Load:
    """The same requests again and again, each time with other prompts of the same lengths."""

    def __init__(self, model: Path) -> None:
        self._bodies = BodySettings(
            SERVED_NAME,
            Endpoint.COMPLETIONS,
            ignores_eos=True,
            vocabulary_size=load_config(model).vocab_size,
        )

    def run(self, engine: Engine, key: str) -> tuple[float, float]:
        """Output tokens per second, and the seconds that the load took.

        Raises:
            ToolError: a request has no whole answer.
        """
        requests = tuple(
            PlannedRequest(
                index, 0.0, SyntheticPrompt((SyntheticBlock(f"{key}, {index}", prompt),)), output
            )
            for index, (prompt, output) in enumerate(LOAD)
        )
        plan = LoadPlan(requests, 0, "together", "two kinds", "", Bound.REQUESTS)
        settings = ClientSettings(engine.url, Endpoint.COMPLETIONS.path, timeout_s=_TIMEOUT_S)
        client = LoadClient(settings, time.monotonic)
        run = LoadRun(plan, self._bodies, client, drain_s=_TIMEOUT_S, clock=time.monotonic)
        records = asyncio.run(run.run()).records
        for record in records:
            if record.failure is not None:
                raise ToolError(f"a request failed: {record.failure}")
        length_s = max(record.ended_s for record in records)
        return sum(record.output_tokens for record in records) / length_s, length_s


def measure_costs(setup: Setup, rounds: int) -> list[Figures]:
    """All modes, interleaved over the rounds.

    Raises:
        ToolError: a server does not start, or a request fails.
    """
    load = Load(setup.model)
    samples: dict[Mode, list[Sample]] = {mode: [] for mode in Mode}
    for index in range(rounds):
        with_addon = [Mode.IDLE, Mode.WATCHED, Mode.HOLDING]
        turn = index % len(with_addon)
        servers = [[Mode.ABSENT], [*with_addon[turn:], *with_addon[:turn]]]
        for modes in servers if index % 2 == 0 else reversed(servers):
            for mode, sample in _on_one_server(setup, load, modes, index):
                samples[mode].append(sample)
    return [_figures(mode, samples[mode], samples[Mode.ABSENT]) for mode in Mode]


def _on_one_server(
    setup: Setup, load: Load, modes: Sequence[Mode], round_index: int
) -> Iterator[tuple[Mode, Sample]]:
    name = f"round-{round_index}-{modes[0].name.lower()}"
    probe = setup.work / f"{name}-probe"
    probe.mkdir()
    has_addon = Mode.ABSENT not in modes
    say(f"round {round_index + 1}: starting SGLang {'with' if has_addon else 'without'} the add-on")
    with sglang(setup, name, has_addon=has_addon, probe=probe) as engine:
        load.run(engine, "warm-up")
        for mode in modes:
            sample = _sample(engine, load, mode, probe, f"{name}, {mode.value}")
            hooks_us = 1e6 * sum(sample.hook_s.values())
            say(
                f"round {round_index + 1}, {mode.value}: {sample.tokens_per_s:.0f} tokens/s, "
                f"hooks {hooks_us:.0f} µs per micro-batch, {sample.num_held} held"
            )
            yield mode, sample


def _sample(engine: Engine, load: Load, mode: Mode, probe: Path, key: str) -> Sample:
    with ExitStack() as stack:
        most_held = [0]
        if mode in (Mode.WATCHED, Mode.HOLDING):
            most_held = stack.enter_context(_controlled(engine, mode))
        leader = _leader_pid(engine)
        before, threads_s = read_costs(probe), cpu_s_of_other_threads(leader)
        tokens_per_s, length_s = load.run(engine, key)
        threads_s = cpu_s_of_other_threads(leader) - threads_s
        costs = {rank: now.since(before[rank]) for rank, now in read_costs(probe).items()}
    hook_s = dict.fromkeys(HOOKS, 0.0)
    if 0 in costs:
        num_micro_batches = costs[0].num_micro_batches
        hook_s = {name: cpu_s / num_micro_batches for name, cpu_s in costs[0].cpu_s.items()}
    return Sample(
        tokens_per_s,
        hook_s,
        _total_s(costs.get(0)) / length_s,
        max((_total_s(found) for rank, found in costs.items() if rank), default=0.0) / length_s,
        threads_s / length_s,
        most_held[0],
    )


def _total_s(costs: Costs | None) -> float:
    return 0.0 if costs is None else sum(costs.cpu_s.values())


def _leader_pid(engine: Engine) -> int:
    """Of stage 0's scheduler."""
    for pid, title in titles_below(engine.pid).items():
        if title.startswith("sglang::scheduler") and title.endswith("PP0"):
            return pid
    raise ToolError("SGLang has no process that is titled as stage 0's scheduler")


@contextmanager
def _controlled(engine: Engine, mode: Mode) -> Iterator[list[int]]:
    """Watch with a policy in force during the block; yields the most decodes held so far."""
    most_held = [0]
    with grpc.insecure_channel(engine.control_address) as channel:
        stub = SchedulerControlStub(channel)
        call = stub.Watch(pb.WatchRequest(controller_name="bench"))
        hello = next(call).hello
        if hello.inactive_reason:
            raise ToolError(f"the add-on is inactive: {hello.inactive_reason}")

        def read() -> None:
            try:
                for event in call:
                    most_held[0] = max(most_held[0], event.records.snapshot.num_held)
            except grpc.RpcError:
                return  # cancelled below, or the engine has ended, which the load will tell

        thread = threading.Thread(target=read)
        thread.start()
        try:
            policy = _policy(mode)
            stub.Apply(pb.ApplyRequest(epoch=hello.epoch, sequence=1, policy=policy))
            yield most_held
            # The next mode begins with nobody held and the static chunk.
            policy.lease_s = _LEAST_LEASE_S
            stub.Apply(pb.ApplyRequest(epoch=hello.epoch, sequence=2, policy=policy))
        finally:
            call.cancel()
            thread.join()


def _policy(mode: Mode) -> pb.Policy:
    predictive = Predictive(_STAIRS, tuple(range(16, 257, 16)), tpot_target_s=0.5)
    holding: HoldNothing | Rebalance = HoldNothing()
    if mode is Mode.HOLDING:
        holding = Rebalance(HoldMode.TPOT_FIRST, _STAIRS, _BOUNDARIES, 0.5, hold_budget_s=5.0)
    return encode_policy(LeasedPolicy(SchedulingPolicy(predictive, holding=holding), _LEASE_S))


def _figures(mode: Mode, samples: Sequence[Sample], absent: Sequence[Sample]) -> Figures:
    parts_s = {
        part: median(
            sum(s.hook_s[name] for name, of in HOOKS.items() if of == part) for s in samples
        )
        for part in dict.fromkeys(HOOKS.values())
    }
    pairs = zip(samples, absent, strict=True)
    return Figures(
        mode.value,
        _range([sample.tokens_per_s for sample in samples]),
        _range([ours.tokens_per_s / theirs.tokens_per_s for ours, theirs in pairs]),
        _range([sum(sample.hook_s.values()) for sample in samples]),
        parts_s,
        _range([sample.hooks_ratio for sample in samples]),
        _range([sample.other_ranks_ratio for sample in samples]),
        _range([sample.threads_ratio for sample in samples]),
        max(sample.num_held for sample in samples),
    )


def _range(values: Sequence[float]) -> Range:
    return Range(median(values), min(values), max(values))


def print_costs(all_figures: Sequence[Figures]) -> None:
    """A row per mode, then what the hooks' time goes into."""
    heads = ("tokens/s", "ratio", "hooks µs", "hooks", "other ranks", "threads")
    print(f"{'mode':20}" + "".join(f"{head:>20}" for head in heads) + f"{'held':>6}")
    for figures in all_figures:
        cells = (
            _text(figures.tokens_per_s, "{:.0f}"),
            _text(figures.speed_ratio, "{:.2f}"),
            _text(figures.hooks_s, "{:.0f}", 1e6),
            _text(figures.hooks_ratio, "{:.1%}"),
            _text(figures.other_ranks_ratio, "{:.1%}"),
            _text(figures.threads_ratio, "{:.1%}"),
        )
        row = "".join(f"{cell:>20}" for cell in cells)
        print(f"{figures.mode:20}{row}{figures.num_held:>6}")
    for figures in all_figures[1:]:
        parts = ", ".join(f"{part} {1e6 * cpu_s:.0f}" for part, cpu_s in figures.parts_s.items())
        print(f"{figures.mode}: of stage 0's µs per micro-batch {parts}")


def _text(values: Range, form: str, scale: float = 1.0) -> str:
    texts = [form.format(scale * value) for value in (values.median, values.lowest, values.highest)]
    return f"{texts[0]} ({texts[1]}-{texts[2]})"
