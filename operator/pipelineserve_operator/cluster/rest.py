"""Requests to a real API server, by the `kubernetes` package's connection, in threads of their own.

Plain JSON in and out. The package's typed models would cost a conversion each way and know no
custom resource, and its dynamic client begins by reading every kind that the cluster has.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient, Configuration

from pipelineserve_operator.cluster.access import FIELD_OWNER
from pipelineserve_operator.cluster.errors import ApiError, no_answer
from pipelineserve_operator.cluster.kinds import Kind, kind_of
from pipelineserve_operator.cluster.token_bucket import TokenBucket
from pipelineserve_operator.render import JsonObject

logger = logging.getLogger(__name__)

_JSON = "application/json"
# The cluster's keys have a type of their own, and are refused to whoever takes plain JSON only.
_ACCEPTED = f"{_JSON}, */*"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_CONNECT_TIMEOUT_S = 10.0
_REPLY_TIMEOUT_S = 30.0
_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.5
_MOST_PAUSE_S = 10.0
PAGE_SIZE = 100
"""Objects of a list that are read at once: a page of StatefulSets is 10 MB as Python's."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `what` names it in errors."""

    what: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: JsonObject | None = None
    content_type: str = _JSON


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    body: bytes
    retry_after_s: float | None = None


class Sender(Protocol):
    """Sends a request and waits for its reply, in a thread."""

    def __call__(self, request: Request) -> Reply:
        """Raises `ApiError` when no reply comes."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests per second in the long run, and how many may come at once."""

    per_s: float = 200.0
    burst: float = 400.0
    threads: int = 16


class RestCluster:
    """The API server as `Cluster`; every request passes a token bucket.

    Args:
        send: of `ApiServer`, or another one.
        rates: bounds on requests.
    """

    def __init__(self, send: Sender, rates: Rates) -> None:
        self._send = send
        self._bucket = TokenBucket(rates.per_s, rates.burst)
        self._threads = ThreadPoolExecutor(rates.threads, thread_name_prefix="api")
        self.num_requests = 0

    def close(self) -> None:
        """Let no further request begin; those under way are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def get(self, kind: Kind, namespace: str, name: str) -> JsonObject | None:
        """One object; None if it is not there."""
        request = Request(f"get {kind.kind} {namespace}/{name}", "GET", kind.path(namespace, name))
        try:
            return await self._call(request)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def find(
        self,
        kind: Kind,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[JsonObject]:
        """All objects of a namespace that have these labels and fields."""
        query = {"labelSelector": _selector(labels)} if labels else {}
        query |= {"fieldSelector": _selector(fields)} if fields else {}
        return [one async for page in self._pages(kind, namespace, query) for one in page]

    async def pages(self, kind: Kind, namespace: str) -> AsyncIterator[list[JsonObject]]:
        """All objects of a namespace, or of all for "", but never all of them at once."""
        async for page in self._pages(kind, namespace, {}):
            yield page

    async def _pages(
        self, kind: Kind, namespace: str, query: Mapping[str, str]
    ) -> AsyncIterator[list[JsonObject]]:
        what = f"list {kind.kind} in {namespace or 'all namespaces'}"
        query = {"limit": str(PAGE_SIZE), **query}
        while True:
            page = await self._call(Request(what, "GET", kind.path(namespace), query))
            # Elements of a list do not say what they are.
            yield [
                {"apiVersion": kind.api_version, "kind": kind.kind, **one} for one in page["items"]
            ]
            following = page["metadata"].get("continue")
            if not following:
                return
            query = {**query, "continue": following}

    async def apply(self, document: JsonObject) -> JsonObject:
        """Server-side apply, fields of others taken over; what the server made of it."""
        return await self._apply(document, "")

    async def apply_status(self, document: JsonObject) -> JsonObject:
        """The same for the status alone."""
        return await self._apply(document, "/status")

    async def create(self, document: JsonObject) -> bool:
        """Create an object; False if one of its name is there already."""
        return await self._create(document, {})

    async def lacks(self, document: JsonObject) -> bool:
        """Whether no object has this one's name; nothing is made, and nothing of it is read."""
        return await self._create(document, {"dryRun": "All"})

    async def _create(self, document: JsonObject, query: Mapping[str, str]) -> bool:
        kind, namespace = kind_of(document), document["metadata"]["namespace"]
        request = Request(
            f"create {_named(document)}",
            "POST",
            kind.path(namespace),
            {"fieldManager": FIELD_OWNER, **query},
            document,
        )
        try:
            await self._call(request)
        except ApiError as error:
            if error.is_conflict:
                return False
            raise
        return True

    async def replace(self, document: JsonObject) -> JsonObject:
        """Put an object in place of the version of it that `metadata.resourceVersion` names."""
        return await self._call(
            Request(
                f"update {_named(document)}",
                "PUT",
                _path(document),
                {"fieldManager": FIELD_OWNER},
                document,
            )
        )

    async def merge(self, kind: Kind, namespace: str, name: str, changes: JsonObject) -> JsonObject:
        """Change these fields of an object, whoever owns them."""
        return await self._call(
            Request(
                f"patch {kind.kind} {namespace}/{name}",
                "PATCH",
                kind.path(namespace, name),
                {"fieldManager": FIELD_OWNER},
                changes,
                _MERGE,
            )
        )

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str | None = None) -> None:
        """Delete an object unless it is gone already; with `uid`, only the one that has it."""
        options: JsonObject = {"propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        what = f"delete {kind.kind} {namespace}/{name}"
        request = Request(what, "DELETE", kind.path(namespace, name), body=options)
        try:
            await self._call(request)
        except ApiError as error:
            # A conflict: another one has the name by now, so the one that was meant is gone.
            if not (error.is_not_found or error.is_conflict):
                raise

    async def knows(self, kind: Kind) -> bool:
        """Whether the cluster has this kind."""
        request = Request(f"discover {kind.api_version}", "GET", f"/apis/{kind.api_version}")
        try:
            found = await self._call(request)
        except ApiError as error:
            if error.is_not_found:
                return False
            raise
        return any(one["name"] == kind.plural for one in found["resources"])

    async def document(self, path: str) -> JsonObject:
        """What the API server publishes under a path, for example `/openid/v1/jwks`."""
        return await self._call(Request(f"get {path}", "GET", path))

    async def _apply(self, document: JsonObject, subresource: str) -> JsonObject:
        return await self._call(
            Request(
                f"apply {_named(document)}{subresource}",
                "PATCH",
                f"{_path(document)}{subresource}",
                {"fieldManager": FIELD_OWNER, "force": "true"},
                document,
                _APPLY,
            )
        )

    async def _call(self, request: Request) -> JsonObject:
        """Send it; again after a pause if the server is busy."""
        pause_s = _FIRST_PAUSE_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._call_once(request)
            except ApiError as error:
                if attempt == _ATTEMPTS or not error.is_busy:
                    raise
                logger.info("the API server is busy", extra={"request": request.what})
                await asyncio.sleep(min(error.retry_after_s or pause_s, _MOST_PAUSE_S))
                pause_s *= 2.0
        raise AssertionError("the last attempt returns or raises")

    async def _call_once(self, request: Request) -> JsonObject:
        wait_s = self._bucket.reserve(time.monotonic())
        if wait_s > 0.0:
            await asyncio.sleep(wait_s)
        self.num_requests += 1
        loop = asyncio.get_running_loop()
        reply = await loop.run_in_executor(self._threads, self._send, request)
        if reply.status >= 300:
            raise ApiError(request.what, reply.status, _message(reply), reply.retry_after_s)
        document: JsonObject = json.loads(reply.body)
        return document


class ApiServer:
    """The connection of the `kubernetes` package: addresses, certificates, and tokens that renew.

    Args:
        configuration: as the package loads it from a pod's files or a kubeconfig.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._pool: urllib3.PoolManager = ApiClient(configuration).rest_client.pool_manager

    def __call__(self, request: Request) -> Reply:
        """Send and wait, in the caller's thread."""
        query = f"?{urlencode(request.query)}" if request.query else ""
        headers = {"Accept": _ACCEPTED, "Content-Type": request.content_type, **self._credentials()}
        body = None if request.body is None else json.dumps(request.body).encode()
        try:
            answer = self._pool.request(
                request.method,
                f"{self._configuration.host}{request.path}{query}",
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_REPLY_TIMEOUT_S),
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise no_answer(request.what, str(error)) from error
        return Reply(answer.status, answer.data, _seconds(answer.headers.get("Retry-After")))

    def _credentials(self) -> dict[str, str]:
        settings: Mapping[str, Mapping[str, Any]] = self._configuration.auth_settings()
        return {
            one["key"]: one["value"]
            for one in settings.values()
            if one["in"] == "header" and one["value"]
        }


def _named(document: JsonObject) -> str:
    metadata = document["metadata"]
    return f"{document['kind']} {metadata['namespace']}/{metadata['name']}"


def _path(document: JsonObject) -> str:
    metadata = document["metadata"]
    return kind_of(document).path(metadata["namespace"], metadata["name"])


def _selector(wanted: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in wanted.items())


def _message(reply: Reply) -> str:
    """The server's words; whatever stands between us and it may answer without JSON."""
    try:
        return str(json.loads(reply.body)["message"])
    except (ValueError, KeyError, TypeError):
        return reply.body[:200].decode(errors="replace")


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None
