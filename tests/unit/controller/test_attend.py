"""The operator is attended to over TLS, told what is run, and its objectives are followed."""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from certificates import HOST, Authority
from control_turns import make_objectives
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_controller.attend import OperatorAttendant, status_of
from pipelineserve_controller.objectives import ObjectivesStore, Source
from pipelineserve_controller.settings import SidecarSettings
from scripted_operator import ScriptedOperator
from scripted_scheduler import ScriptedScheduler
from sidecar_parts import STATIC, running, running_loop, until

# Certificates of these tests name the loopback address; it is dialled by another name, so that
# only the fixed name can match.
DIALLED = "localhost"


@dataclass(frozen=True)
class Place:
    """Files and addresses of one test."""

    folder: Path
    authority: Authority

    @property
    def token_file(self) -> Path:
        """What the controller shows."""
        return self.folder / "token"

    def settings(self, port: int, server_name: str = HOST) -> SidecarSettings:
        """Settings that lead to this operator."""
        return SidecarSettings(
            engine_address="unix:/nonexistent",
            operator_address=f"{DIALLED}:{port}",
            operator_ca_file=str(self.authority.pair.certificate),
            operator_token_file=str(self.token_file),
            operator_server_name=server_name,
            resource_uid="uid",
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "token").write_text("secret\n")
    return Place(tmp_path, Authority(tmp_path, "authority"))


def objectives_message(generation: int, milliseconds: int = 1000) -> pb.Objectives:
    spec = {"slo": {"ttft": {"milliseconds": milliseconds}}}
    return pb.Objectives(resource_uid="uid", generation=generation, spec_json=json.dumps(spec))


def attend(
    settings: SidecarSettings, store: ObjectivesStore, condition: Callable[[], bool], what: str
) -> None:
    """Attend until something is so."""

    async def scenario() -> None:
        def status() -> pb.ControllerStatus:
            generation = store.current.generation if store.current else 0
            return pb.ControllerStatus(resource_uid="uid", received_generation=generation)

        attendant = OperatorAttendant(settings, store, status, random.Random(0))
        async with running(attendant.run()):
            await until(condition, what)

    asyncio.run(scenario())


def test_objectives_are_taken_and_their_generation_said_back(place: Place) -> None:
    store = ObjectivesStore("uid")
    with ScriptedOperator(place.authority.issue("operator"), "secret") as operator:
        operator.send(objectives_message(5))
        attend(
            place.settings(operator.port),
            store,
            lambda: bool(operator.heard) and operator.heard[-1].received_generation == 5,
            "the generation said back",
        )
    assert store.source is Source.OPERATOR


def test_an_older_generation_is_ignored(place: Place) -> None:
    store = ObjectivesStore("uid")
    store.offer(make_objectives(generation=7), Source.FILE)
    with ScriptedOperator(place.authority.issue("operator"), "secret") as operator:
        operator.send(objectives_message(6))
        operator.send(objectives_message(8, milliseconds=500))
        attend(
            place.settings(operator.port),
            store,
            lambda: store.current is not None and store.current.generation == 8,
            "the newer generation",
        )


def test_bad_objectives_are_refused_and_the_call_goes_on(place: Place) -> None:
    store = ObjectivesStore("uid")
    with ScriptedOperator(place.authority.issue("operator"), "secret") as operator:
        operator.send(pb.Objectives(resource_uid="uid", generation=1, spec_json='{"slo": 4}'))
        settings = place.settings(operator.port)
        attend(settings, store, lambda: "spec.slo" in store.refused_edit, "the refusal")
        assert operator.num_calls == 1


def test_a_token_that_was_replaced_is_read_again(place: Place) -> None:
    store = ObjectivesStore("uid")
    place.token_file.write_text("old")
    with ScriptedOperator(place.authority.issue("operator"), "secret") as operator:

        def replaced() -> bool:
            if operator.num_turned_away:
                place.token_file.write_text("secret")
            return operator.num_calls > 0

        attend(place.settings(operator.port), store, replaced, "a call with the new token")


def test_a_certificate_of_another_authority_is_not_trusted(place: Place) -> None:
    store, other = ObjectivesStore("uid"), Authority(place.folder, "other")
    with ScriptedOperator(other.issue("operator"), "secret") as operator:
        settings = place.settings(operator.port)

        async def scenario() -> None:
            attendant = OperatorAttendant(settings, store, pb.ControllerStatus, random.Random(0))
            with pytest.raises(Exception, match="UNAVAILABLE"):
                await attendant.attend_once()

        asyncio.run(scenario())
        assert (operator.num_calls, operator.num_turned_away) == (0, 0)


def test_a_certificate_of_another_name_is_not_trusted(place: Place) -> None:
    with ScriptedOperator(place.authority.issue("operator"), "secret") as operator:
        settings = place.settings(operator.port, server_name="someone-else")

        async def scenario() -> None:
            attendant = OperatorAttendant(
                settings, ObjectivesStore(), pb.ControllerStatus, random.Random(0)
            )
            with pytest.raises(Exception, match="UNAVAILABLE"):
                await attendant.attend_once()

        asyncio.run(scenario())
        assert operator.num_calls == 0


def test_an_operator_that_comes_back_is_attended_again_and_told_again(place: Place) -> None:
    store, pair = ObjectivesStore("uid"), place.authority.issue("operator")

    async def scenario() -> None:
        with ScriptedOperator(pair, "secret") as first:
            port = first.port
            attendant = OperatorAttendant(
                place.settings(port),
                store,
                lambda: pb.ControllerStatus(resource_uid="uid"),
                random.Random(0),
            )
            work = running(attendant.run())
            await work.__aenter__()
            await until(lambda: bool(first.heard), "a status")
        with ScriptedOperator(pair, "secret", port) as second:
            await until(lambda: bool(second.heard), "a status again")
        await work.__aexit__(None, None, None)

    asyncio.run(scenario())


def test_what_is_said_is_what_is_run(place: Place) -> None:
    address = f"unix:{place.folder}/control.sock"

    async def scenario() -> pb.ControllerStatus:
        async with running_loop(address, STATIC) as run:
            await until(lambda: run.loop.state.control.is_effective, "a policy in force")
            return status_of(place.settings(1), run.loop, run.store, run.link)

    with ScriptedScheduler(address):
        status = asyncio.run(scenario())
    assert (status.received_generation, status.applied_generation) == (1, 1)
    assert (status.is_engine_connected, status.is_control_effective) == (True, True)
    assert status.reason == "static_chunk"
    assert status.slo_met == pb.VERDICT_UNKNOWN


def test_an_engine_that_cannot_be_controlled_is_said_with_its_own_words(
    place: Place, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/control.sock"

    async def scenario() -> pb.ControllerStatus:
        async with running_loop(address, silence_s=0.1) as run:
            await until(lambda: run.link.is_connected, "a session")
            turns = run.loop.num_turns
            await until(lambda: run.loop.num_turns > turns + 10, "turns after that")
            # It tells nothing, which is no reason to call again and again.
            assert run.link.num_sessions == 1
            assert run.loop.state.engine is not None
            assert run.loop.state.engine.inactive_reason == "a hook is missing"
            assert not run.link.is_superseded
            return status_of(place.settings(1), run.loop, run.store, run.link)

    with ScriptedScheduler(address) as scheduler:
        scheduler.be_inactive("a hook is missing")
        status = asyncio.run(scenario())
    assert scheduler.applied == scheduler.refused == []
    assert (status.is_engine_connected, status.is_control_effective) == (True, False)
    assert status.inactive_reason == "a hook is missing"
