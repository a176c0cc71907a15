"""Tokens that a real API server makes: the operator believes those of its sidecars' pods only."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from attend_parts import (
    AUDIENCE,
    TokenIssuer,
    attending,
    offered,
    operator_running,
    refused,
    status,
    told,
)
from kube_cluster import KubeApi, control_plane, starter
from pipelineserve_operator.attend import PublishedKeys
from sidecar_parts import until

NAMESPACE = f"attend-{secrets.token_hex(4)}"
PATH = f"/api/v1/namespaces/{NAMESPACE}"
ACCOUNT = "small-pods"
CODE = grpc.StatusCode


@dataclass(frozen=True)
class Cluster:
    """A namespace with two pods of one service account and one of another."""

    api: KubeApi
    uids: dict[str, str]

    def token(self, pod: str | None, account: str = ACCOUNT, audience: str = AUDIENCE) -> str:
        """As the kubelet asks for it when it projects one into a pod."""
        bound = (
            {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": self.uids[pod]} if pod else None
        )
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [audience],
                "expirationSeconds": 3600,
                **({"boundObjectRef": bound} if bound else {}),
            },
        }
        answer = self.api.create(f"{PATH}/serviceaccounts/{account}/token", request)
        token: str = answer["status"]["token"]
        return token

    async def read(self, path: str) -> bytes:
        """A document that the API server publishes."""
        return json.dumps(await asyncio.to_thread(self.api.get, path)).encode()

    def keys(self) -> PublishedKeys:
        """The cluster's keys."""
        return PublishedKeys(self.read, lambda: 0.0)


def account(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def pod(name: str, service_account: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "serviceAccountName": service_account,
            "automountServiceAccountToken": False,
            "containers": [{"name": "one", "image": "none"}],
        },
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server without nodes: pods exist and never run, which tokens do not ask."""
    if starter() is None:
        pytest.skip("needs a Kubernetes: KUBECONFIG, or PIPELINESERVE_TEST_CLUSTER to start one")
    with control_plane(tmp_path_factory.mktemp("kube")) as api:
        api.apply(PATH, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        uids = {}
        for name, of in (("mine", ACCOUNT), ("other", ACCOUNT), ("stranger", "strangers")):
            api.apply(f"{PATH}/serviceaccounts/{of}", account(of))
            made = api.apply(f"{PATH}/pods/{name}", pod(name, of))
            uids[name] = made["metadata"]["uid"]
        yield Cluster(api, uids)
        api.delete(PATH)


def outcome(cluster: Cluster, token: str) -> grpc.StatusCode:
    """What a call with this token comes to; OK if it is told the objectives."""

    async def scenario() -> grpc.StatusCode:
        async with operator_running(keys=cluster.keys()) as operator:
            mine = frozenset({cluster.uids["mine"]})
            operator.roster.offer(offered(3, namespace=NAMESPACE, pod_uids=mine))
            async with attending(operator, token) as call:
                await call.write(status(received_generation=3))
                try:
                    assert (await told(call)).generation == 3
                except grpc.aio.AioRpcError as error:
                    return error.code()
                await until(lambda: bool(operator.roster.reports("uid")), "a report")
                (report,) = operator.roster.reports("uid")
                assert (report.pod_name, report.pod_uid) == ("mine", cluster.uids["mine"])
                return CODE.OK

    return asyncio.run(scenario())


def test_the_token_of_a_pod_of_the_resource_is_good(cluster: Cluster) -> None:
    assert outcome(cluster, cluster.token("mine")) is CODE.OK


def test_a_token_for_another_audience_is_not(cluster: Cluster) -> None:
    token = cluster.token("mine", audience="https://kubernetes.default.svc.cluster.local")
    assert outcome(cluster, token) is CODE.UNAUTHENTICATED


def test_the_token_of_another_pod_of_the_same_account_is_not(cluster: Cluster) -> None:
    assert outcome(cluster, cluster.token("other")) is CODE.PERMISSION_DENIED


def test_the_token_of_another_account_is_not(cluster: Cluster) -> None:
    token = cluster.token("stranger", account="strangers")
    assert outcome(cluster, token) is CODE.PERMISSION_DENIED


def test_a_token_that_is_bound_to_no_pod_is_not(cluster: Cluster) -> None:
    assert outcome(cluster, cluster.token(None)) is CODE.UNAUTHENTICATED


def test_a_token_of_another_cluster_is_not(cluster: Cluster) -> None:
    changes = {"kubernetes.io/pod": {"name": "mine", "uid": cluster.uids["mine"]}}
    assert outcome(cluster, TokenIssuer().token(changes)) is CODE.UNAUTHENTICATED


def test_a_pod_of_another_resource_is_told_only_its_own_targets(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with operator_running(keys=cluster.keys()) as operator:
            for uid, name, generation in (("one", "mine", 1), ("two", "other", 2)):
                pods = frozenset({cluster.uids[name]})
                operator.roster.offer(
                    offered(generation, uid=uid, namespace=NAMESPACE, pod_uids=pods)
                )
            async with attending(operator, cluster.token("other")) as call:
                message = await told(call)
                assert (message.resource_uid, message.generation) == ("two", 2)
                status_of_one = status()
                status_of_one.resource_uid = "one"
                await call.write(status_of_one)
                assert (await refused(call))[0] is CODE.PERMISSION_DENIED
            assert operator.roster.reports("one") == ()

    asyncio.run(scenario())
