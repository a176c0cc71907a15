"""Models, health, readiness and metrics."""

import pytest
from prometheus_client import CollectorRegistry

from api_server import MODEL, an_api_context, serving
from fake_engine import FakeEngine
from pipelineserve import metrics
from pipelineserve_engine.generation import EngineStatus
from pipelineserve_engine.telemetry import Telemetry

pytestmark = pytest.mark.anyio


async def test_lists_the_served_model_and_finds_it_by_name() -> None:
    async with serving(an_api_context()) as api:
        models = [model async for model in api.client.models.list()]
        plain = await api.send("GET", f"/v1/models/{MODEL}")
        quoted = await api.client.models.retrieve(MODEL)
        other = await api.send("GET", "/v1/models/other")
    assert [(m.id, m.created, m.object) for m in models] == [(MODEL, 900, "model")]
    assert plain.json()["id"] == quoted.id == MODEL
    assert other.status == 404
    assert other.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("is_live", "is_ready", "codes"),
    [(True, True, (200, 200)), (True, False, (200, 503)), (False, False, (503, 503))],
)
async def test_health_and_readiness_are_the_engines(
    is_live: bool, is_ready: bool, codes: tuple[int, int]
) -> None:
    status = EngineStatus(is_live=is_live, is_ready=is_ready, detail="stage 1 is starting")
    async with serving(an_api_context(FakeEngine(live_status=status))) as api:
        health = await api.send("GET", "/health")
        ready = await api.send("GET", "/ready")
    assert (health.status, ready.status) == codes
    assert health.json()["detail"] == ready.json()["detail"] == "stage 1 is starting"


async def test_metrics_are_those_of_the_given_registry() -> None:
    registry = CollectorRegistry()
    Telemetry(registry).counter(metrics.REQUESTS).labels(outcome="stop").inc(3)
    async with serving(an_api_context(registry=registry)) as api:
        answer = await api.send("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'pipelineserve_requests_total{outcome="stop"} 3.0' in answer.body.decode()
