"""State, events, metrics and health over HTTP."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipelineserve.metrics import CATALOGUE, CONTROLLER_CATALOGUE
from pipelineserve.policy.control.journal_format import from_json
from pipelineserve_controller.service import STUCK_AFTER_S, build_app
from pipelineserve_controller.state import SidecarState
from scripted_scheduler import ScriptedScheduler
from sidecar_parts import STATIC, RunningLoop, idle_loop, running_loop, until


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def client_of(run: RunningLoop) -> httpx.AsyncClient:
    app = build_app(run.loop, lambda: 0, lambda: 0.0)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://sidecar")


def read_while_running(folder: Path, path: str) -> httpx.Response:
    address = f"unix:{folder}/control.sock"

    async def scenario() -> httpx.Response:
        async with running_loop(address, STATIC) as run, client_of(run) as client:
            await until(lambda: run.loop.state.control.is_effective, "a policy in force")
            return await client.get(path)

    with ScriptedScheduler(address):
        return asyncio.run(scenario())


def test_the_state_is_json_of_the_documented_shape(tmp_path: Path) -> None:
    answer = read_while_running(tmp_path, "/api/state")
    assert answer.headers["cache-control"] == "no-store"
    state = from_json(SidecarState, answer.json())
    assert (state.control.mode.value, state.control.generation) == ("Active", 1)
    assert state.engine is not None
    assert (state.engine.name, state.chunk.static_tokens) == ("scripted", 256)
    assert state.decisions[0].reason == "static_chunk"
    assert state.history
    # Nothing was served yet: unknown, and never zero.
    assert (state.ttft.measured_s, state.slo.attainment_ratio) == (None, None)


def test_metrics_are_those_of_the_controllers_catalogue(tmp_path: Path) -> None:
    text = read_while_running(tmp_path, "/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    expected = {metric.name.removesuffix("_total") for metric in CONTROLLER_CATALOGUE}
    assert set(families) == expected
    assert families["pipelineserve_control_effective"].samples[0].value == 1.0
    # Unknown has no series.
    assert families["pipelineserve_slo_met"].samples == []


def test_no_name_is_in_both_catalogues() -> None:
    names = [metric.name for metric in (*CATALOGUE, *CONTROLLER_CATALOGUE)]
    assert len(names) == len(set(names))


def test_every_entry_has_series_before_anything_happened() -> None:
    async def scenario() -> str:
        app = build_app(idle_loop(), lambda: 7, lambda: 0.0)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            return (await client.get("/metrics")).text

    text = asyncio.run(scenario())
    assert "pipelineserve_control_journal_lost_total 7.0" in text
    assert "pipelineserve_control_connected 0.0" in text


@pytest.mark.parametrize("path", ["/healthz", "/api/state", "/metrics"])
def test_answers_before_the_first_turn(path: str) -> None:
    async def scenario() -> int:
        transport = httpx.ASGITransport(build_app(idle_loop(), lambda: 0, lambda: 0.0))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            return (await client.get(path)).status_code

    assert asyncio.run(scenario()) == 200


def test_ready_means_that_turns_are_taken_with_or_without_an_engine() -> None:
    clock, loop = Clock(), idle_loop()

    async def scenario() -> list[int]:
        transport = httpx.ASGITransport(build_app(loop, lambda: 0, clock))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            before = await client.get("/readyz")
            await loop.turn()
            assert loop.turned_at_s is not None
            clock.now_s = loop.turned_at_s + 1.0
            after = await client.get("/readyz")
            clock.now_s = loop.turned_at_s + STUCK_AFTER_S + 1.0
            stuck = await client.get("/readyz")
            return [before.status_code, after.status_code, stuck.status_code]

    assert asyncio.run(scenario()) == [503, 200, 503]


def test_events_are_the_same_state_again_and_again(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/control.sock"

    async def scenario() -> list[dict[str, Any]]:
        async with running_loop(address, STATIC) as run:
            app = build_app(run.loop, lambda: 0, lambda: 0.0)
            route = next(r for r in app.routes if getattr(r, "path", "") == "/api/events")
            answer = await route.endpoint()  # type: ignore[attr-defined]
            assert answer.media_type == "text/event-stream"
            states: list[dict[str, Any]] = []
            async for text in answer.body_iterator:
                if text.startswith("event: state\ndata: "):
                    states.append(json.loads(text.partition("data: ")[2]))
                if len(states) == 2:
                    return states
        raise AssertionError("expected events until the test had enough")

    with ScriptedScheduler(address):
        first, second = asyncio.run(scenario())
    assert from_json(SidecarState, first).now_unix_s < from_json(SidecarState, second).now_unix_s
