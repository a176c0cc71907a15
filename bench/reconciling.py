"""The operator with many resources: how soon children exist and edits arrive, and what it costs.

    python -m bench.reconciling [--resources 1,100,1000] [--edits 50] [--seed 0] [--json]

A real API server without nodes (`KUBECONFIG`, or the cluster that `PIPELINESERVE_TEST_CLUSTER`
starts), the operator as a process of its own, and one process in place of all sidecars
(`bench.attend_sidecars`), each with a token bound to its resource's pod. For each number of
resources:

1. All are created at once: from each one's request until its last child exists.
2. Every pod is made ready as a kubelet would; once the operator rests, its memory is read.
3. The operator is started anew: looks without anything to do, what they ask and what they write.
4. The sidecars attend. Targets are edited one after the other, then all at once: from each request
   until its sidecar has it.

Times are in milliseconds, of this machine with everything on it.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import secrets
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.attend import sidecars
from bench.attend_sidecars import Company, Hearing
from bench.environments import ToolError
from bench.reconciling_cluster import Api, JsonObject, connected, is_own, kubeconfig
from bench.reconciling_operator import (
    CONTROLLER_IMAGE,
    ENGINE_IMAGE,
    Operator,
    operating,
    warnings_in,
)
from tools.crd import NAME, crd

from pipelineserve.api import API_VERSION, KIND, resource_from_document
from pipelineserve_operator.attend import SERVER_NAME
from pipelineserve_operator.cluster import Kind, kind_of
from pipelineserve_operator.cluster.kinds import CHILDREN
from pipelineserve_operator.render import (
    OperatorSettings,
    all_objects,
    labels,
    names,
    places,
    subject_of,
)

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# A cluster that is started here has 254 addresses for Services, and each resource takes one.
_SERVICE_ADDRESSES = "/apis/networking.k8s.io/v1/servicecidrs"
_MORE_ADDRESSES = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "ServiceCIDR",
    "metadata": {"name": "reconciling"},
    "spec": {"cidrs": ["10.200.0.0/16"]},
}
_QUIET_S = 3.0
_TIMEOUT_S = 900.0
_POLL_S = 0.25
# Requests of ours that the API server works on at the same time.
_MAX_AT_ONCE = 16


@dataclass(frozen=True)
class Row:
    """One number of resources."""

    resources: int
    children_p50_ms: float
    children_p99_ms: float
    looks_to_ready: float
    requests_to_ready: float
    resident_megabytes: float
    idle_looks: float
    requests_per_idle_look: float
    writes_per_idle_look: float
    applied_per_idle_look: float
    edit_p50_ms: float
    edit_p99_ms: float
    all_p50_ms: float
    all_p99_ms: float
    attended_megabytes: float


class Bench:
    """One namespace with its resources."""

    def __init__(self, api: Api, namespace: str, num_resources: int) -> None:
        self._api = api
        self._namespace = namespace
        self._names = [f"r{index:04}" for index in range(num_resources)]
        self._turns = asyncio.Semaphore(_MAX_AT_ONCE)
        self._uids: dict[str, str] = {}
        self._missing: dict[str, set[tuple[Kind, str]]] = {}
        self._complete: dict[str, asyncio.Future[float]] = {}
        self._pods: dict[str, asyncio.Future[str]] = {}
        self._heard: dict[tuple[int, int], asyncio.Future[float]] = {}

    async def prepare(self) -> None:
        """The namespace."""
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
        await self._api.create("/api/v1/namespaces", space)

    async def create(self) -> list[float]:
        """Every resource at once; seconds until each one's children exist."""
        loop = asyncio.get_running_loop()
        self._complete = {name: loop.create_future() for name in self._names}
        self._pods = {name: loop.create_future() for name in self._names}
        self._missing = {
            name: set(_children(_resource(name, self._namespace))) for name in self._names
        }
        self._watching = [asyncio.create_task(self._watch(kind)) for kind in (*CHILDREN, Kind.POD)]
        async with asyncio.timeout(_TIMEOUT_S):
            return await asyncio.gather(*map(self._create, self._names))

    async def _create(self, name: str) -> float:
        path = Kind.PIPELINE_SERVE.path(self._namespace)
        async with self._turns:
            began_s = time.monotonic()
            made = await self._api.create(path, _resource(name, self._namespace))
        self._uids[name] = made["metadata"]["uid"]
        return await self._complete[name] - began_s

    async def _watch(self, kind: Kind) -> None:
        path = kind.path(self._namespace)
        async for owner, name, moment_s in self._api.added(path, labels.NAME):
            if kind is Kind.POD:
                if not self._pods[owner].done():
                    self._pods[owner].set_result(name)
                continue
            missing = self._missing[owner]
            missing.discard((kind, name))
            if not missing and not self._complete[owner].done():
                self._complete[owner].set_result(moment_s)

    async def make_ready(self) -> None:
        """What kubelets would say of every pod."""
        async with asyncio.timeout(_TIMEOUT_S):
            await asyncio.gather(*map(self._make_ready, self._names))
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    async def _make_ready(self, name: str) -> None:
        path = Kind.POD.path(self._namespace, await self._pods[name])
        async with self._turns:
            pod = await self._api.get(path)
            await self._api.merge(f"{path}/status", _running(pod))

    async def company(self, operator: Operator) -> Company:
        """All sidecars, with a token each and what the operator publishes to them."""
        path = Kind.CONFIG_MAP.path(self._namespace, names.control(self._names[0]))
        bundle = (await self._api.get(path))["data"][places.CA_BUNDLE]
        return Company(
            address=f"127.0.0.1:{operator.attend_port}",
            server_name=SERVER_NAME,
            bundle=bundle,
            tokens=await asyncio.gather(*map(self._token, self._names)),
            uids=[self._uids[name] for name in self._names],
        )

    async def _token(self, name: str) -> str:
        account = Kind.SERVICE_ACCOUNT.path(self._namespace, names.members(name))
        bound = {"kind": "Pod", "apiVersion": "v1", "name": await self._pods[name]}
        spec = {
            "audiences": [places.TOKEN_AUDIENCE],
            "expirationSeconds": 3600,
            "boundObjectRef": bound,
        }
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": spec,
        }
        async with self._turns:
            made = await self._api.create(f"{account}/token", request)
        token: str = made["status"]["token"]
        return token

    async def attended(self) -> None:
        """Wait until every sidecar was told something."""
        async with asyncio.timeout(_TIMEOUT_S):
            await asyncio.gather(*(self._hearing(index, 1) for index in range(len(self._names))))

    async def edit(self, index: int, target_ms: int) -> float:
        """Another target; seconds until the sidecar has it."""
        path = Kind.PIPELINE_SERVE.path(self._namespace, self._names[index])
        changes = {"spec": {"slo": {"ttft": {"milliseconds": target_ms}}}}
        async with self._turns:
            began_s = time.monotonic()
            made = await self._api.merge(path, changes)
        async with asyncio.timeout(_TIMEOUT_S):
            return await self._hearing(index, made["metadata"]["generation"]) - began_s

    def hear(self, hearing: Hearing) -> None:
        """A sidecar was told something."""
        told = self._hearing(hearing.sidecar_index, hearing.generation)
        if not told.done():
            told.set_result(hearing.heard_at_s)

    def _hearing(self, index: int, generation: int) -> "asyncio.Future[float]":
        """Of one generation; it may be there before anybody waits for it."""
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        return self._heard.setdefault((index, generation), future)


def _resource(name: str, namespace: str) -> JsonObject:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"uri": "hf://org/model"},
            "engine": {"type": "Torch"},
            "parallelism": {"stages": 1},
            "slo": {"ttft": {"milliseconds": 2000}},
        },
    }


def _children(resource: JsonObject) -> Iterator[tuple[Kind, str]]:
    metadata = {**resource["metadata"], "uid": "any", "generation": 1}
    subject = subject_of(resource_from_document({**resource, "metadata": metadata}, "the bench's"))
    settings = OperatorSettings(engine_image=ENGINE_IMAGE, controller_image=CONTROLLER_IMAGE)
    for one in all_objects(subject, settings):
        # A revision is named after images, too; that it exists is told by the set that follows it.
        if (kind := kind_of(one)) is not Kind.CONTROLLER_REVISION:
            yield kind, one["metadata"]["name"]


def _running(pod: JsonObject) -> JsonObject:
    containers = [
        {
            "name": one["name"],
            "image": one["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {}},
        }
        for one in pod["spec"]["containers"]
    ]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"status": {"phase": "Running", "conditions": [ready], "containerStatuses": containers}}


async def measure(api: Api, config: Path, number: int, options: argparse.Namespace) -> Row:
    """One row of the table, of this number of resources."""
    namespace = f"reconciling-{secrets.token_hex(4)}"
    bench = Bench(api, namespace, number)
    await bench.prepare()
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"operator-{index}.log" for index in range(2)]
        try:
            async with operating(config, namespace, logs[0], options.flags) as operator:
                _say(f"{number}: creating")
                created_s = await bench.create()
                _say(f"{number}: all exist after {max(created_s):.1f} s; pods become ready")
                await bench.make_ready()
                made = await operator.quiet(number, _QUIET_S, _TIMEOUT_S)
            applied = await api.num_applied()
            _say(f"{number}: {made}; starting the operator anew")
            async with operating(config, namespace, logs[1], options.flags) as operator:
                idle = await operator.quiet(number, _QUIET_S, _TIMEOUT_S)
                applied = await api.num_applied() - applied
                _say(f"{number}: {idle}; sidecars come, targets are edited")
                one_s, all_s, memory_bytes = await _edits(bench, operator, number, options)
        finally:
            for line in (line for log in logs if log.exists() for line in warnings_in(log)[:5]):
                _say(f"the operator said: {line}")
    return Row(
        resources=number,
        children_p50_ms=_ms(created_s, 50),
        children_p99_ms=_ms(created_s, 99),
        looks_to_ready=made.num_looks / number,
        requests_to_ready=made.num_requests / number,
        resident_megabytes=made.memory_bytes / 1e6,
        idle_looks=idle.num_looks,
        requests_per_idle_look=idle.num_requests / idle.num_looks,
        writes_per_idle_look=idle.num_writes / idle.num_looks,
        applied_per_idle_look=applied / idle.num_looks,
        edit_p50_ms=_ms(one_s, 50),
        edit_p99_ms=_ms(one_s, 99),
        all_p50_ms=_ms(all_s, 50),
        all_p99_ms=_ms(all_s, 99),
        attended_megabytes=memory_bytes / 1e6,
    )


async def _edits(
    bench: Bench, operator: Operator, number: int, options: argparse.Namespace
) -> tuple[list[float], list[float], float]:
    """Seconds of edits one after the other, of all at once, and the operator's memory then."""
    chance, targets = random.Random(options.seed), itertools.count(2001)
    async with sidecars(await bench.company(operator), bench):
        await bench.attended()
        await operator.quiet(0, _QUIET_S / 3, _TIMEOUT_S)
        one_s = [
            await bench.edit(chance.randrange(number), next(targets)) for _ in range(options.edits)
        ]
        all_s = await asyncio.gather(*(bench.edit(i, next(targets)) for i in range(number)))
        return one_s, all_s, (await operator.figures()).memory_bytes


def _ms(spans_s: Sequence[float], percentile: int) -> float:
    if len(spans_s) == 1:
        return 1e3 * spans_s[0]
    return 1e3 * statistics.quantiles(spans_s, n=100, method="inclusive")[percentile - 1]


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


async def _run(config: Path, options: argparse.Namespace) -> list[Row]:
    async with connected(config) as api:
        await _define(api)
        if is_own(config):
            await api.create(_SERVICE_ADDRESSES, _MORE_ADDRESSES)
        return [await measure(api, config, number, options) for number in options.resources]


async def _define(api: Api) -> None:
    with contextlib.suppress(ToolError):  # a cluster that is given may have it
        await api.create(_DEFINITIONS, crd())
    async with asyncio.timeout(_TIMEOUT_S):
        while not await _is_defined(api):  # noqa: ASYNC110 # it is another process that says so
            await asyncio.sleep(_POLL_S)


async def _is_defined(api: Api) -> bool:
    status = (await api.get(f"{_DEFINITIONS}/{NAME}"))["status"]
    return ("Established", "True") in {
        (one["type"], one["status"]) for one in status.get("conditions") or ()
    }


def table(rows: Iterable[Row]) -> str:
    """For a page of Markdown: one line for each number of resources."""
    documents = [asdict(row) for row in rows]
    lines = [list(documents[0]), ["---"] * len(documents[0])]
    lines += [[f"{value:.4g}" for value in one.values()] for one in documents]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--resources", type=_numbers, default=[1, 100, 1000])
    parser.add_argument("--edits", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("flags", nargs="*", help="of the operator, after --")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # leave nothing
    with tempfile.TemporaryDirectory() as folder, kubeconfig(Path(folder) / "kube") as config:
        rows = asyncio.run(_run(config, options))
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
