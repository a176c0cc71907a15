"""The sidecar's own client and the operator's own server, over TLS."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from attend_parts import (
    GivenPair,
    RunningOperator,
    TokenIssuer,
    of_pod,
    offered,
    operator_running,
    status,
)
from pipelineserve.api import parse_resource
from pipelineserve.wire import keepalive
from pipelineserve.wire.keepalive import Keepalive
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_controller.attend import OperatorAttendant
from pipelineserve_controller.objectives import ObjectivesStore
from pipelineserve_controller.settings import SidecarSettings
from pipelineserve_operator.attend import AttendSettings
from pipelineserve_operator.issuing import make_authority
from pipelineserve_operator.render.configuration import live_sections_text
from sidecar_parts import running, until
from silent_network import network_to

RESOURCE = """
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {name: small}
spec:
  model: {uri: file:///model}
  parallelism: {stages: 2}
  slo: {ttft: {percentile: 95, milliseconds: 700}}
  control: {mode: Advisory}
"""


@dataclass
class Sidecar:
    """What a sidecar has of the operator, in files and in mind."""

    folder: Path
    issuer: TokenIssuer
    source: GivenPair

    def __post_init__(self) -> None:
        self.store = ObjectivesStore("uid")
        self.show(self.issuer.token())
        self.trust(self.source.authority.certificate)

    def show(self, token: str) -> None:
        """Have this token."""
        (self.folder / "token").write_text(token)

    def trust(self, bundle: str) -> None:
        """Have this CA bundle."""
        (self.folder / "ca.crt").write_text(bundle)

    @property
    def generation(self) -> int:
        """Of the objectives that are followed; 0 for none."""
        return self.store.current.generation if self.store.current else 0

    @asynccontextmanager
    async def attending(
        self, address: str, pings: Keepalive = keepalive.SIDECAR
    ) -> AsyncIterator[None]:
        """Attend until the block ends."""
        settings = SidecarSettings(
            engine_address="unix:/nonexistent",
            operator_address=address,
            operator_ca_file=str(self.folder / "ca.crt"),
            operator_token_file=str(self.folder / "token"),
            resource_uid="uid",
        )

        def said() -> pb.ControllerStatus:
            return status(received_generation=self.generation)

        attendant = OperatorAttendant(settings, self.store, said, random.Random(0), pings)
        async with running(attendant.run()):
            yield


@pytest.fixture
def sidecar(tmp_path: Path) -> Sidecar:
    return Sidecar(tmp_path, TokenIssuer(), GivenPair())


def has_said(operator: RunningOperator, generation: int) -> Callable[[], bool]:
    def condition() -> bool:
        reports = operator.roster.reports("uid")
        return any(report.status.received_generation == generation for report in reports)

    return condition


def test_a_sidecar_follows_what_is_offered_and_says_so(sidecar: Sidecar) -> None:
    resource = parse_resource(RESOURCE, "the test's resource")

    async def scenario() -> None:
        async with operator_running(sidecar.issuer, source=sidecar.source) as operator:
            operator.roster.offer(offered(1, spec_json=live_sections_text(resource.spec)))
            async with sidecar.attending(operator.address):
                await until(has_said(operator, 1), "the first generation")
                operator.roster.offer(offered(2))
                await until(has_said(operator, 2), "the second generation")

    asyncio.run(scenario())
    assert sidecar.store.refused_edit == ""


def test_what_the_renderer_makes_of_targets_is_what_the_sidecar_follows(sidecar: Sidecar) -> None:
    resource = parse_resource(RESOURCE, "the test's resource")

    async def scenario() -> None:
        async with operator_running(sidecar.issuer, source=sidecar.source) as operator:
            operator.roster.offer(offered(4, spec_json=live_sections_text(resource.spec)))
            async with sidecar.attending(operator.address):
                await until(lambda: sidecar.generation == 4, "the objectives")

    asyncio.run(scenario())
    current = sidecar.store.current
    assert current is not None
    assert current.ttft is not None
    assert (current.ttft.percentile, current.ttft.target_s) == (95, 0.7)
    assert (current.mode.value, current.resource_uid) == ("Advisory", "uid")


def test_an_operator_that_was_killed_and_comes_back_is_attended_again(sidecar: Sidecar) -> None:
    async def scenario() -> None:
        async with operator_running(sidecar.issuer, source=sidecar.source) as first:
            port = first.server.port
            first.roster.offer(offered(1))
            attending = sidecar.attending(first.address)
            await attending.__aenter__()
            await until(has_said(first, 1), "a report")
        again = operator_running(sidecar.issuer, source=sidecar.source, port=port)
        async with again as second:
            second.roster.offer(offered(2))
            await until(has_said(second, 2), "a report to the one that came back")
            await attending.__aexit__(None, None, None)

    asyncio.run(scenario())


def test_a_sidecar_that_dials_before_its_pod_is_known_is_let_in_later(sidecar: Sidecar) -> None:
    async def scenario() -> None:
        async with (
            operator_running(sidecar.issuer, source=sidecar.source) as operator,
            sidecar.attending(operator.address),
        ):
            await until(lambda: bool(operator.server.refusals), "a refusal")
            operator.roster.offer(offered(1))
            await until(has_said(operator, 1), "a report")

    asyncio.run(scenario())


def test_another_pod_s_token_is_no_help_and_the_right_one_is_read_when_it_comes(
    sidecar: Sidecar,
) -> None:
    sidecar.show(sidecar.issuer.token(of_pod(5)))

    async def scenario() -> None:
        async with operator_running(sidecar.issuer, source=sidecar.source) as operator:
            operator.roster.offer(offered(1))
            async with sidecar.attending(operator.address):
                await until(lambda: bool(operator.server.refusals), "a refusal")
                sidecar.show(sidecar.issuer.token())
                await until(has_said(operator, 1), "a report")

    asyncio.run(scenario())


def test_a_ca_is_replaced_without_anybody_being_cut_off(sidecar: Sidecar) -> None:
    """The bundle that the sidecar has names the next CA before anything is signed with it."""
    old, following = sidecar.source.authority, make_authority(time.time())

    async def scenario() -> None:
        async with operator_running(sidecar.issuer, source=sidecar.source) as operator:
            operator.roster.offer(offered(1))
            port = operator.server.port
            async with sidecar.attending(operator.address):
                await until(has_said(operator, 1), "a report")
                sidecar.trust(old.certificate + following.certificate)
        sidecar.source.replace(following)
        again = operator_running(sidecar.issuer, source=sidecar.source, port=port)
        async with again as operator:
            operator.roster.offer(offered(2))
            async with sidecar.attending(operator.address):
                await until(has_said(operator, 2), "a report under the new CA")

    asyncio.run(scenario())


# Real ones take longer than a test should.
QUICK = Keepalive(time_s=0.3, timeout_s=0.3)


def test_a_sidecar_notices_that_the_network_carries_nothing_and_connects_anew(
    sidecar: Sidecar,
) -> None:
    async def scenario() -> None:
        async with (
            operator_running(
                sidecar.issuer, source=sidecar.source, allowed_pings=QUICK
            ) as operator,
            network_to(operator.server.port) as network,
        ):
            operator.roster.offer(offered(1))
            async with sidecar.attending(f"127.0.0.1:{network.port}", QUICK):
                await until(has_said(operator, 1), "the first generation")
                network.fall_silent()
                operator.roster.offer(offered(2))
                await until(has_said(operator, 2), "the second generation, over another connection")
                assert network.num_connections == 2

    asyncio.run(scenario())


def test_the_operator_notices_that_the_network_carries_nothing(sidecar: Sidecar) -> None:
    async def scenario() -> None:
        async with (
            operator_running(sidecar.issuer, source=sidecar.source, pings=QUICK) as operator,
            network_to(operator.server.port) as network,
        ):
            operator.roster.offer(offered(1))
            async with sidecar.attending(f"127.0.0.1:{network.port}"):
                await until(has_said(operator, 1), "the first generation")
                network.fall_silent()
                await until(lambda: operator.roster.num_streams == 0, "the end of the stream")

    asyncio.run(scenario())


def test_the_operator_does_not_hang_up_on_a_sidecar_that_pings_as_it_may(sidecar: Sidecar) -> None:
    async def scenario() -> None:
        async with (
            operator_running(
                sidecar.issuer, source=sidecar.source, allowed_pings=QUICK
            ) as operator,
            network_to(operator.server.port) as network,
        ):
            operator.roster.offer(offered(1))
            async with sidecar.attending(f"127.0.0.1:{network.port}", QUICK):
                await until(has_said(operator, 1), "the first generation")
                enough = network.num_pieces + 8
                await until(lambda: network.num_pieces > enough, "more pings than strikes")
                assert network.num_connections == 1

    asyncio.run(scenario())


def test_pings_of_sidecars_are_rarer_than_the_least_that_the_operator_allows() -> None:
    (allowed,) = dict(keepalive.SIDECAR.allowed()).values()
    assert allowed < dict(keepalive.SIDECAR.options())["grpc.keepalive_time_ms"]
    assert AttendSettings("", "").allowed_pings is keepalive.SIDECAR
