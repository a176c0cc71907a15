"""An API server without nodes, and what the bench of the operator asks of it."""

import json
import os
import re
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import kubernetes
from bench.environments import ToolError

_ROOT = Path(__file__).parents[1]
_START_TIMEOUT_S = 240.0
_REQUEST_TIMEOUT_S = 60.0
_MERGE = "application/merge-patch+json"
# An object's name and labels are all that is asked of a watch.
_NAMES_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

JsonObject = dict[str, Any]


@contextmanager
def kubeconfig(folder: Path) -> Iterator[Path]:
    """`KUBECONFIG`, or that of a cluster that is there for the length of the block.

    Raises:
        ToolError: none is given and none can be started.
    """
    if given := os.environ.get("KUBECONFIG"):
        yield Path(given)
        return
    named = os.environ.get("PIPELINESERVE_TEST_CLUSTER")
    program = Path(named) if named else _ROOT.parent / "shared" / "cluster" / "cluster"
    if not program.is_file():
        raise ToolError(
            "expected a Kubernetes: KUBECONFIG, or PIPELINESERVE_TEST_CLUSTER to start one"
        )
    place = ("--dir", str(folder))
    try:
        started = subprocess.run(
            [program, "up", *place],
            capture_output=True,
            text=True,
            timeout=_START_TIMEOUT_S,
            check=False,
        )
        if started.returncode != 0:
            raise ToolError(f"the cluster did not start:\n{started.stdout}{started.stderr}")
        yield folder / "admin.kubeconfig"
    finally:
        subprocess.run(
            [program, "down", *place], capture_output=True, timeout=_START_TIMEOUT_S, check=False
        )


def is_own(config: Path) -> bool:
    """Whether the cluster was started here and goes with the bench."""
    return str(config) != os.environ.get("KUBECONFIG")


class Api:
    """Requests with a kubeconfig's certificate."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str) -> JsonObject:
        """An object or a list."""
        return await self._asked("GET", path, None, "application/json")

    async def create(self, path: str, document: Mapping[str, Any]) -> JsonObject:
        """Post a document; what the server made of it."""
        return await self._asked("POST", path, document, "application/json")

    async def merge(self, path: str, changes: Mapping[str, Any]) -> JsonObject:
        """Change these fields of an object."""
        return await self._asked("PATCH", path, changes, _MERGE)

    async def num_applied(self) -> float:
        """Server-side applies that it has served: the operator's alone, of status too."""
        reply = await self._client.get("/metrics")
        found = re.findall(
            r'^apiserver_request_total\{.*verb="APPLY".*\} (\S+)$', reply.text, re.MULTILINE
        )
        return sum(map(float, found))

    async def added(self, path: str, label: str) -> AsyncIterator[tuple[str, str, float]]:
        """Objects with this label as they are made: its value, the object's name, and when."""
        query = {"watch": "true", "labelSelector": label}
        headers = {"Accept": _NAMES_ONLY}
        async with self._client.stream(
            "GET", path, params=query, headers=headers, timeout=None
        ) as reply:
            async for line in reply.aiter_lines():
                moment_s, event = time.monotonic(), json.loads(line)
                if event["type"] == "ADDED":
                    metadata = event["object"]["metadata"]
                    yield metadata["labels"][label], metadata["name"], moment_s

    async def _asked(
        self, method: str, path: str, document: Mapping[str, Any] | None, content_type: str
    ) -> JsonObject:
        content = None if document is None else json.dumps(document)
        reply = await self._client.request(
            method, path, content=content, headers={"Content-Type": content_type}
        )
        if not reply.is_success:
            raise ToolError(f"{method} {path}: expected success, got {reply.text}")
        answer: JsonObject = reply.json()
        return answer


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Api]:
    """The API server of a kubeconfig."""
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(path), client_configuration=configuration)
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    context.load_cert_chain(configuration.cert_file, configuration.key_file)
    async with httpx.AsyncClient(
        base_url=configuration.host,
        verify=context,
        timeout=_REQUEST_TIMEOUT_S,
        trust_env=False,
        limits=httpx.Limits(max_connections=None),
    ) as client:
        yield Api(client)
