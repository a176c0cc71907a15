"""Requests to the API server: what is sent, what is tried again, what is an error."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pipelineserve_operator.cluster import ApiError, Kind
from pipelineserve_operator.cluster.rest import Rates, Reply, Request, RestCluster
from pipelineserve_operator.cluster.token_bucket import TokenBucket

CONFIG_MAP: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "n"},
}
FOUND = Reply(200, b'{"kind": "ConfigMap"}')


class Server:
    """Replies in turn, the last one for ever."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Reply:
        """The next reply."""
        self.requests.append(request)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def refusal(status: int, message: str = "no", retry_after_s: float | None = None) -> Reply:
    return Reply(status, json.dumps({"message": message}).encode(), retry_after_s)


@contextmanager
def cluster_of(server: Server) -> Iterator[RestCluster]:
    cluster = RestCluster(server, Rates(threads=2))
    yield cluster
    cluster.close()


def asked(server: Server, ask: Callable[[RestCluster], Any]) -> Any:
    with cluster_of(server) as cluster:
        return asyncio.run(ask(cluster))


def test_an_apply_takes_the_fields_over_as_our_manager() -> None:
    server = Server(FOUND)
    asked(server, lambda cluster: cluster.apply(CONFIG_MAP))
    (request,) = server.requests
    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/n/configmaps/a")
    assert request.query == {"fieldManager": "pipelineserve-operator", "force": "true"}
    assert request.content_type == "application/apply-patch+yaml"


def test_a_list_is_read_page_by_page_and_its_elements_say_what_they_are() -> None:
    pages = [
        {"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "a"}}]},
        {"metadata": {}, "items": [{"metadata": {"name": "b"}}]},
    ]
    server = Server(*(Reply(200, json.dumps(page).encode()) for page in pages))
    found = asked(server, lambda cluster: cluster.find(Kind.STATEFUL_SET, "n", labels={"x": "1"}))
    assert [(one["kind"], one["metadata"]["name"]) for one in found] == [
        ("StatefulSet", "a"),
        ("StatefulSet", "b"),
    ]
    assert server.requests[0].query["labelSelector"] == "x=1"
    assert server.requests[1].query["continue"] == "more"


def test_the_next_page_is_asked_for_when_the_last_one_was_used() -> None:
    pages = [
        {"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "a"}}]},
        {"metadata": {}, "items": [{"metadata": {"name": "b"}}]},
    ]
    server = Server(*(Reply(200, json.dumps(page).encode()) for page in pages))

    async def read(cluster: RestCluster) -> list[tuple[list[str], int]]:
        return [
            ([one["metadata"]["name"] for one in page], len(server.requests))
            async for page in cluster.pages(Kind.PIPELINE_SERVE, "n")
        ]

    assert asked(server, read) == [(["a"], 1), (["b"], 2)]


def test_what_is_not_there_is_nothing_and_what_is_there_already_is_no_error() -> None:
    assert asked(Server(refusal(404)), lambda c: c.get(Kind.POD, "n", "a")) is None
    assert asked(Server(refusal(409)), lambda c: c.create(CONFIG_MAP)) is False
    assert asked(Server(FOUND), lambda c: c.create(CONFIG_MAP)) is True
    for status in (404, 409):
        asked(Server(refusal(status)), lambda c: c.delete(Kind.POD, "n", "a", "uid"))


def test_a_delete_is_for_the_very_object_that_was_seen() -> None:
    server = Server(FOUND)
    asked(server, lambda cluster: cluster.delete(Kind.STATEFUL_SET, "n", "a", "uid-1"))
    body = server.requests[0].body
    assert body is not None
    assert body["preconditions"] == {"uid": "uid-1"}


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(status: int) -> None:
    server = Server(refusal(status, retry_after_s=0.01), FOUND)
    assert asked(server, lambda c: c.apply(CONFIG_MAP)) == {"kind": "ConfigMap"}
    assert len(server.requests) == 2


def test_every_request_is_counted_those_that_are_sent_again_too() -> None:
    async def ask(cluster: RestCluster) -> int:
        await cluster.apply(CONFIG_MAP)
        return cluster.num_requests

    assert asked(Server(refusal(503, retry_after_s=0.01), FOUND), ask) == 2


def test_a_refusal_is_an_error_at_once_in_the_servers_words() -> None:
    server = Server(refusal(403, "exceeded quota"))
    with pytest.raises(ApiError, match="exceeded quota") as caught:
        asked(server, lambda c: c.apply(CONFIG_MAP))
    assert caught.value.is_refusal
    assert len(server.requests) == 1


def test_an_answer_that_is_no_json_is_shown() -> None:
    with pytest.raises(ApiError, match="Bad Gateway from a proxy"):
        asked(Server(Reply(418, b"Bad Gateway from a proxy")), lambda c: c.apply(CONFIG_MAP))


def test_a_kind_is_known_if_the_server_says_so() -> None:
    found = Reply(200, b'{"resources": [{"name": "podmonitors"}]}')
    assert asked(Server(found), lambda c: c.knows(Kind.POD_MONITOR))
    assert not asked(Server(found), lambda c: c.knows(Kind.PROMETHEUS_RULE))
    assert not asked(Server(refusal(404)), lambda c: c.knows(Kind.POD_MONITOR))


def test_a_burst_passes_and_the_long_run_keeps_to_the_rate() -> None:
    bucket = TokenBucket(per_s=10.0, burst=3.0)
    waits = [bucket.reserve(0.0) for _ in range(5)]
    assert waits == pytest.approx([0.0, 0.0, 0.0, 0.1, 0.2])
    assert not bucket.try_take(0.2)
    assert bucket.try_take(0.4)
    assert bucket.reserve(100.0) == 0.0


def test_whether_a_name_is_free_is_asked_without_making_or_reading_anything() -> None:
    free, taken = Server(FOUND), Server(refusal(409))
    assert asked(free, lambda cluster: cluster.lacks(CONFIG_MAP)) is True
    assert asked(taken, lambda cluster: cluster.lacks(CONFIG_MAP)) is False
    for server in (free, taken):
        (request,) = server.requests
        assert (request.method, request.path) == ("POST", "/api/v1/namespaces/n/configmaps")
        assert request.query["dryRun"] == "All"
