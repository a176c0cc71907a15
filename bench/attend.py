"""How soon an edit is at its sidecar, and what sidecars cost the operator: its Attend server alone.

    python -m bench.attend [--sidecars 1 100 1000] [--edits 200] [--rounds 5]

The server runs in this process with nothing of the cluster around it, all sidecars in another one
(`bench.attend_sidecars`). Edits of one resource come one after another; then all resources are
edited at the same moment. Times are from the offer to the sidecar's having it, in milliseconds.
The share of a core is this process's own, while every sidecar says its figures every five seconds.
"""

import argparse
import asyncio
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Protocol

import jwt
from bench.attend_sidecars import Company, Hearing
from cryptography.hazmat.primitives.asymmetric import ec

from pipelineserve_operator.attend import (
    SERVER_NAME,
    AttendServer,
    AttendSettings,
    KeyPair,
    Roster,
)
from pipelineserve_operator.attend.keys import SigningKey
from pipelineserve_operator.issuing import issue_pair, make_authority
from pipelineserve_operator.link import Offered

_AUDIENCE = "pipelineserve.dev"
_ISSUER = "https://bench"
_SPEC = '{"slo":{"ttft":{"percentile":90,"milliseconds":%d},"tpot":{"milliseconds":200}}}'
_IDLE_S = 15.0
_DEADLINE_S = 120.0


class OneKey:
    """Signs the tokens and is all the keys that there are."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        public = jwt.PyJWK(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True))
        self._signing = SigningKey(_ISSUER, "ES256", public)

    async def find(self, key_id: str) -> SigningKey | None:
        """The one key, whatever it is called."""
        del key_id
        return self._signing

    def token(self, index: int) -> str:
        """Of the pod of this number."""
        now_s = int(time.time())
        claims = {
            "iss": _ISSUER,
            "aud": [_AUDIENCE],
            "sub": "system:serviceaccount:bench:pods",
            "iat": now_s,
            "nbf": now_s,
            "exp": now_s + 3600,
            "kubernetes.io": {
                "namespace": "bench",
                "pod": {"name": f"pod-{index}", "uid": f"pod-{index}"},
                "serviceaccount": {"name": "pods", "uid": "pods"},
            },
        }
        return jwt.encode(claims, self.key, "ES256", {"kid": "one"})


@dataclass
class Given:
    """A certificate that stays."""

    present: KeyPair

    def pair(self) -> KeyPair:
        """The present one."""
        return self.present


class Bench:
    """A roster, and what the process in place of its sidecars has heard."""

    def __init__(self, roster: Roster, num_sidecars: int) -> None:
        self._roster = roster
        self._num_sidecars = num_sidecars
        self._generation = 0
        self._awaited: dict[int, asyncio.Future[float]] = {}

    async def edit(self, indices: Sequence[int]) -> list[float]:
        """Offer another generation to these sidecars; seconds until each has it."""
        self._generation += 1
        loop = asyncio.get_running_loop()
        self._awaited = {index: loop.create_future() for index in indices}
        began_at_s = time.monotonic()
        for index in indices:
            self._roster.offer(_offered(index, self._generation))
        async with asyncio.timeout(_DEADLINE_S):
            heard_at_s = await asyncio.gather(*self._awaited.values())
        return [moment_s - began_at_s for moment_s in heard_at_s]

    def hear(self, hearing: Hearing) -> None:
        """A sidecar was told something."""
        awaited = self._awaited.get(hearing.sidecar_index)
        if awaited is not None and not awaited.done():
            awaited.set_result(hearing.heard_at_s)


def _offered(index: int, generation: int) -> Offered:
    return Offered(
        uid=f"uid-{index}",
        namespace="bench",
        name=f"resource-{index}",
        generation=generation,
        spec_json=_SPEC % (1000 + generation),
        service_account="pods",
        pod_uids=frozenset({f"pod-{index}"}),
    )


class Listener(Protocol):
    """Gets what sidecars were told."""

    def hear(self, hearing: Hearing) -> None:
        """A sidecar was told something."""


@asynccontextmanager
async def sidecars(company: Company, bench: Listener) -> AsyncIterator[None]:
    """The other process, which attends until the block ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.attend_sidecars"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("expected both pipes that were asked for")
    process.stdin.write(json.dumps(asdict(company)).encode() + b"\n")
    reading = asyncio.create_task(_read(process.stdout, bench))
    try:
        yield
    finally:
        process.stdin.close()
        await process.wait()
        await reading


async def _read(stream: asyncio.StreamReader, bench: Listener) -> None:
    async for line in stream:
        bench.hear(Hearing(**json.loads(line)))


async def measure(num_sidecars: int, num_edits: int, num_rounds: int) -> dict[str, float]:
    """One row of the table."""
    keys, authority, chance = OneKey(), make_authority(time.time()), random.Random(0)
    roster = Roster(lambda _: None, time.monotonic)
    settings = AttendSettings("127.0.0.1:0", _AUDIENCE)
    server = AttendServer(settings, roster, keys, Given(issue_pair(authority, time.time())[0]))
    await server.start()
    company = Company(
        address=f"127.0.0.1:{server.port}",
        server_name=SERVER_NAME,
        bundle=authority.certificate,
        tokens=[keys.token(index) for index in range(num_sidecars)],
        uids=[f"uid-{index}" for index in range(num_sidecars)],
    )
    bench, before_bytes, began_at_s = Bench(roster, num_sidecars), _rss_bytes(), time.monotonic()
    everyone = range(num_sidecars)
    try:
        async with sidecars(company, bench):
            await bench.edit(everyone)
            connected_s = time.monotonic() - began_at_s
            one = [
                (await bench.edit([chance.randrange(num_sidecars)]))[0] for _ in range(num_edits)
            ]
            all_at_once = [s for _ in range(num_rounds) for s in await bench.edit(everyone)]
            core_ratio = await _core_ratio()
            used_bytes = _rss_bytes() - before_bytes
    finally:
        await server.stop()
    return {
        "sidecars": num_sidecars,
        "connected_s": connected_s,
        "one_p50_ms": 1e3 * _percentile(one, 50),
        "one_p99_ms": 1e3 * _percentile(one, 99),
        "all_p50_ms": 1e3 * _percentile(all_at_once, 50),
        "all_p99_ms": 1e3 * _percentile(all_at_once, 99),
        "core_ratio": core_ratio,
        "memory_mb": used_bytes / 1e6,
        "process_mb": _rss_bytes() / 1e6,
    }


async def _core_ratio() -> float:
    began_at_s, used_s = time.monotonic(), time.process_time()
    await asyncio.sleep(_IDLE_S)
    return (time.process_time() - used_s) / (time.monotonic() - began_at_s)


def _percentile(values: Sequence[float], percentile: int) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percentile - 1]


def _rss_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 # no file of a folder
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--sidecars", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for num_sidecars in options.sidecars:
        row = asyncio.run(measure(num_sidecars, options.edits, options.rounds))
        print(json.dumps({name: round(value, 3) for name, value in row.items()}), flush=True)


if __name__ == "__main__":
    main()
