"""`helm test` tells a cluster with an operator from one without."""

from typing import Any

import pytest

from cluster_in_memory import ClusterInMemory
from pipelineserve.api import resource_from_document
from pipelineserve_operator.cluster import ApiError, Kind
from pipelineserve_operator.selftest import judged, resource

pytestmark = pytest.mark.anyio


class WithOperator(ClusterInMemory):
    """Somebody writes the status of whatever is made."""

    async def create(self, document: Any) -> bool:
        """With a status at once."""
        made = await super().create(document)
        condition = {"type": "Ready", "status": "True", "reason": "ScaledToZero", "message": ""}
        place = (Kind.PIPELINE_SERVE, "models", document["metadata"]["name"])
        self.objects[place]["status"] = {"conditions": [condition]}
        return made


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_what_it_makes_is_a_resource_without_replicas() -> None:
    made = resource_from_document(resource("models", "check"), "selftest")
    assert made.spec.replicas == 0


async def test_a_resource_that_is_seen_to_is_good_and_goes_again() -> None:
    cluster = WithOperator()
    verdict = await judged(cluster, "models", "check", timeout_s=30)
    assert verdict.is_good
    assert "ScaledToZero" in verdict.text
    assert cluster.objects == {}


async def test_without_an_operator_it_says_what_to_look_at_and_leaves_nothing() -> None:
    cluster = ClusterInMemory()
    verdict = await judged(cluster, "models", "check", timeout_s=0.01)
    assert not verdict.is_good
    assert "does the operator run" in verdict.text
    assert cluster.objects == {}


async def test_a_refusal_is_told_in_the_server_s_words() -> None:
    def refuse(request: str) -> None:
        if request.startswith("create"):
            raise ApiError("create PipelineServe models/check", 403, "not allowed")

    verdict = await judged(ClusterInMemory(fail=refuse), "models", "check", timeout_s=30)
    assert not verdict.is_good
    assert "not allowed" in verdict.text
