"""Makes a resource without replicas, waits until an operator has seen to it; `helm test` runs this.

It shows that resources are watched, that the operator may do what it must, and that status is
written, and it costs neither pods nor devices. The resource is deleted again in any case.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import kubernetes

from pipelineserve.api import API_VERSION, KIND
from pipelineserve_operator.cluster import ApiError, Cluster, Kind
from pipelineserve_operator.cluster.rest import ApiServer, Rates, RestCluster
from pipelineserve_operator.render import JsonObject

_LOOK_PERIOD_S = 0.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it went, in words for whoever ran the test."""

    is_good: bool
    text: str


def resource(namespace: str, name: str) -> JsonObject:
    """Nothing of it is ever fetched or run."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"uri": "file:///nothing"},
            "engine": {"type": "Torch"},
            "parallelism": {"stages": 1},
            "replicas": 0,
            "slo": {"ttft": {"milliseconds": 1000}},
        },
    }


async def judged(cluster: Cluster, namespace: str, name: str, timeout_s: float) -> Verdict:
    """Make the resource, wait until it is ready, delete it."""
    ready: JsonObject = {}
    try:
        # One that an interrupted test left is as good.
        await cluster.create(resource(namespace, name))
        async with asyncio.timeout(timeout_s):
            ready = await _ready(cluster, namespace, name)
            while ready.get("status") != "True":
                await asyncio.sleep(_LOOK_PERIOD_S)
                ready = await _ready(cluster, namespace, name)
    except TimeoutError:
        said = f"{ready.get('reason')}: {ready.get('message')}" if ready else "no condition Ready"
        return Verdict(
            False,
            f"{namespace}/{name} is not ready after {timeout_s:g} s ({said}); does the operator "
            f"run, and does it watch the namespace {namespace}?",
        )
    except ApiError as error:
        return Verdict(False, str(error))
    finally:
        await cluster.delete(Kind.PIPELINE_SERVE, namespace, name)
    return Verdict(True, f"{namespace}/{name} was seen to: {ready['reason']}")


async def _ready(cluster: Cluster, namespace: str, name: str) -> JsonObject:
    found = await cluster.get(Kind.PIPELINE_SERVE, namespace, name) or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Ready"), {})


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if an operator has seen to the resource in time."""
    parser = argparse.ArgumentParser(
        prog="python -m pipelineserve_operator.selftest",
        description="Make a resource of no replicas and wait until an operator has seen to it.",
    )
    parser.add_argument("--namespace", required=True, help="one that the operator watches")
    parser.add_argument("--name", required=True, help="of the resource")
    parser.add_argument("--timeout-seconds", type=float, default=60.0)
    options = parser.parse_args(arguments)
    account = kubernetes.client.Configuration()
    kubernetes.config.load_incluster_config(client_configuration=account)
    cluster = RestCluster(ApiServer(account), Rates())
    verdict = asyncio.run(judged(cluster, options.namespace, options.name, options.timeout_seconds))
    sys.stderr.write(f"{verdict.text}\n")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
