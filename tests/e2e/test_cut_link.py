"""A stage in a network namespace of its own, whose link is cut and restored."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api_server import RunningApi
from engine_server import NAME, EngineServer
from free_ports import a_free_port
from pipelineserve import metrics
from served_model import ServedModel
from stage_hosts import RunningStageHost, save_group_key

pytestmark = pytest.mark.anyio

NUM_TOKENS = 300
REQUESTS: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 1.0, "seed": 5})


@dataclass(frozen=True)
class OtherHost:
    """A network namespace, joined to this one by a pair of virtual interfaces."""

    name: str
    near_interface: str
    far_interface: str
    near_address: str
    far_address: str

    def inside(self, *command: str) -> list[str]:
        """The command, run over there."""
        return ["ip", "netns", "exec", self.name, *command]

    def set_link(self, state: str) -> None:
        """Cut or restore the link, over there."""
        run(*self.inside("ip", "link", "set", self.far_interface, state))


def run(*command: str) -> None:
    done = attempt(*command)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def attempt(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture
def other_host() -> Iterator[OtherHost]:
    number = os.getpid() % 250 + 1
    host = OtherHost(
        *(f"pserve-{number}", f"psn{number}", f"psf{number}"),
        *(f"10.213.{number}.1", f"10.213.{number}.2"),
    )
    added = attempt("ip", "netns", "add", host.name)
    if added.returncode:
        pytest.skip(f"ip netns add is not permitted here: {added.stderr.strip()}")
    try:
        pair = ("type", "veth", "peer", "name", host.far_interface)
        run("ip", "link", "add", host.near_interface, *pair)
        run("ip", "link", "set", host.far_interface, "netns", host.name)
        run("ip", "address", "add", f"{host.near_address}/24", "dev", host.near_interface)
        run("ip", "link", "set", host.near_interface, "up")
        far_end = ("dev", host.far_interface)
        run(*host.inside("ip", "address", "add", f"{host.far_address}/24", *far_end))
        host.set_link("up")
        yield host
    finally:
        run("ip", "netns", "delete", host.name)
        attempt("ip", "link", "delete", host.near_interface)  # it went with the other end


async def ask(api: RunningApi, fields: dict[str, Any]) -> str:
    stream = await api.client.completions.create(
        model=NAME, prompt="once upon a time", max_tokens=NUM_TOKENS, stream=True, **fields
    )
    return "".join([piece.choices[0].text async for piece in stream])


async def ask_all(api: RunningApi) -> list[str]:
    return await asyncio.gather(*(ask(api, fields) for fields in REQUESTS))


async def test_a_link_that_is_cut_for_longer_than_patience_costs_time_only(
    served_model: ServedModel, other_host: OtherHost, tmp_path: Path
) -> None:
    key_file = save_group_key(tmp_path / "group.key")
    port = a_free_port(other_host.near_address)
    addresses = (other_host.near_address, other_host.far_address)
    with ExitStack() as stack:
        server = stack.enter_context(
            EngineServer(
                served_model.folder,
                *(
                    "--stages=2",
                    "--static-chunk-tokens=32",
                    f"--stage-addresses={addresses[0]},{addresses[1]}",
                ),
                *(f"--leader-address={addresses[0]}", f"--leader-port={port}"),
                f"--group-key-file={key_file}",
            )
        )
        hosts = [
            stack.enter_context(
                RunningStageHost(
                    leader=f"{addresses[0]}:{port}",
                    stage_index=index,
                    model_folder=served_model.folder,
                    address=addresses[index],
                    key_file=key_file,
                    prefix=other_host.inside() if index == 1 else (),
                )
            )
            for index in range(2)
        ]
        await asyncio.to_thread(server.wait_serving)
        api = RunningApi(server.port)
        undisturbed = await ask_all(api)
        streams = asyncio.create_task(ask_all(api))
        await asyncio.to_thread(
            server.wait_metrics,
            lambda now: now.value(metrics.OUTPUT_TOKENS) >= NUM_TOKENS * len(REQUESTS) + 100,
        )
        other_host.set_link("down")
        await asyncio.to_thread(server.wait_for_line, "stage 1 was silent for")
        # Until the stage host, too, has given up on the other side.
        await asyncio.to_thread(hosts[1].wait_for_line, "the leader was silent for")
        assert hosts[1].worker_pids() == ()
        assert not streams.done()
        other_host.set_link("up")
        assert await streams == undisturbed
        assert server.metrics().value(metrics.RECOVERIES) == 1
        await api.close()
