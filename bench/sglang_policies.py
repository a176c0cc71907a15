"""Chunk policies inside a real SGLang, its own dynamic chunking among them; see `bench.sglang`."""

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench.control.contestants import SERVED_NAME, Engine, Product, write_manifest
from bench.control.load import MixedLoad
from bench.environments import ToolError, say
from bench.server_processes import free_port, serving
from bench.sglang_servers import Setup, sglang

from pipelineserve.load.summaries import Share, Summary, share_of, summarise
from pipelineserve_cli.load.bodies import BodySettings, Endpoint
from pipelineserve_cli.load.client import ClientSettings, LoadClient
from pipelineserve_cli.load.records import RequestRecord
from pipelineserve_cli.load.run import LoadRun
from pipelineserve_engine.model_config import load_config

_TIMEOUT_S = 300.0
STATIC, PREDICTIVE, DYNAMIC = "Static", "Predictive", "SGLang's dynamic chunking"


@dataclass(frozen=True)
class Figures:
    """All rounds of one contestant together.

    Attributes:
        attainment: requests that met both targets; those without an answer did not.
        attainments: the same of each round.
        largest_gap: of each request, summed up.
    """

    contestant: str
    attainment: Share
    attainments: tuple[float, ...]
    ttft: Summary
    tpot: Summary
    largest_gap: Summary


Records = tuple[RequestRecord, ...]


def compare_policies(setup: Setup, load: MixedLoad, rounds: int) -> list[Figures]:
    """Each contestant once per round, with the same requests at the same times.

    Raises:
        ToolError: a server or the sidecar does not start, or a policy does not come in force.
    """
    taken: dict[str, list[Records]] = {STATIC: [], PREDICTIVE: [], DYNAMIC: []}
    for index in range(rounds):
        servers = [_ours, _theirs]
        for server in servers if index % 2 == 0 else reversed(servers):
            for contestant, records in server(setup, load, index):
                taken[contestant].append(records)
    return [_figures(setup, contestant, records) for contestant, records in taken.items()]


def _ours(setup: Setup, load: MixedLoad, index: int) -> Iterator[tuple[str, Records]]:
    say(f"round {index + 1}: starting SGLang with the add-on")
    with (
        sglang(setup, f"ours-{index}") as engine,
        _steered(setup, engine, index) as product,
    ):
        product.use(PREDICTIVE)
        _run(setup, load, engine, "learning", index)
        contestants = (STATIC, PREDICTIVE)
        for contestant in contestants if index % 2 == 0 else reversed(contestants):
            product.use(contestant)
            yield contestant, _run(setup, load, engine, contestant, index)
        say(f"round {index + 1}: in use at last: {product.state()['chunk']['in_use']}")


def _theirs(setup: Setup, load: MixedLoad, index: int) -> Iterator[tuple[str, Records]]:
    say(f"round {index + 1}: starting SGLang with its own dynamic chunking")
    with sglang(setup, f"theirs-{index}", "--enable-dynamic-chunking", has_addon=False) as engine:
        _run(setup, load, engine, "warm-up", index)
        yield DYNAMIC, _run(setup, load, engine, DYNAMIC, index)


@contextmanager
def _steered(setup: Setup, engine: Engine, index: int) -> Iterator[Product]:
    """The engine with a sidecar of its own."""
    manifest, port = setup.work / f"manifest-{index}.yaml", free_port()
    write_manifest(manifest, setup.sizes, STATIC)
    command = [
        *(sys.executable, "-m", "pipelineserve_controller.supervisor"),
        *(f"--engine-address={engine.control_address}", f"--port={port}"),
        *(f"--objectives-file={manifest}", f"--parent-pid={os.getpid()}"),
    ]
    url = f"http://127.0.0.1:{port}"
    log = setup.work / f"sidecar-{index}.log"
    with serving(command, os.environ, f"{url}/readyz", log):
        yield Product(engine, manifest, url, setup.sizes)


def _run(setup: Setup, load: MixedLoad, engine: Engine, contestant: str, index: int) -> Records:
    bodies = BodySettings(
        SERVED_NAME,
        Endpoint.COMPLETIONS,
        ignores_eos=True,
        vocabulary_size=load_config(setup.model).vocab_size,
    )
    settings = ClientSettings(engine.url, Endpoint.COMPLETIONS.path, timeout_s=_TIMEOUT_S)
    client = LoadClient(settings, time.monotonic)
    plan = load.plan(index, f"{contestant}, {index}")
    run = LoadRun(plan, bodies, client, drain_s=_TIMEOUT_S, clock=time.monotonic)
    records = asyncio.run(run.run()).records
    figures = _figures(setup, contestant, [records])
    say(
        f"round {index + 1}, {contestant}: {figures.attainment.ratio:.0%} attained, P90 of TTFT "
        f"{1000 * figures.ttft.p90:.0f} ms, of TPOT {1000 * figures.tpot.p90:.1f} ms"
    )
    return records


def _figures(setup: Setup, contestant: str, rounds: Sequence[Records]) -> Figures:
    met = [[_attains(setup, record) for record in records] for records in rounds]
    attainment = share_of(sum(map(sum, met)), sum(map(len, met)))
    if attainment is None:
        raise ToolError("the load has no requests; make it longer")
    answered = [record for records in rounds for record in records if record.failure is None]
    return Figures(
        contestant,
        attainment,
        tuple(sum(each) / len(each) for each in met),
        _summary(record.ttft_s for record in answered),
        _summary(record.tpot_s for record in answered),
        _summary(max(record.gaps_s, default=0.0) for record in answered),
    )


def _attains(setup: Setup, record: RequestRecord) -> bool:
    if record.failure is not None or record.ttft_s is None:
        return False
    is_tpot_met = record.tpot_s is None or record.tpot_s <= setup.sizes.tpot_target_s
    return record.ttft_s <= setup.sizes.ttft_target_s and is_tpot_met


def _summary(values: Iterable[float | None]) -> Summary:
    found = summarise(value for value in values if value is not None)
    if found is None:
        raise ToolError("no request was answered")
    return found


def print_policies(all_figures: Sequence[Figures]) -> None:
    """A row per contestant; times in ms, P50 / P90 / P99."""
    print(f"{'policy':28}{'attained':>20}{'TTFT ms':>20}{'TPOT ms':>20}{'gap ms':>20}")
    for figures in all_figures:
        low, high = min(figures.attainments), max(figures.attainments)
        attained = f"{figures.attainment.ratio:.0%} ({low:.0%}-{high:.0%})"
        times = "".join(
            f"{_ms(summary):>20}" for summary in (figures.ttft, figures.tpot, figures.largest_gap)
        )
        print(f"{figures.contestant:28}{attained:>20}{times}")


def _ms(summary: Summary) -> str:
    return "/".join(f"{1000 * value:.1f}" for value in (summary.p50, summary.p90, summary.p99))
