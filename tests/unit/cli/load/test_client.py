"""One request: a whole answer, or the reason why there is none."""

import asyncio
import time
from dataclasses import replace

import pytest

from load_builders import plan_of
from pipelineserve.errors import EngineUnavailableError
from pipelineserve_cli.load.client import Answer, ClientSettings, LoadClient, find_models
from pipelineserve_cli.load.records import Failure, FailureKind, RequestRecord
from scripted_completions import (
    DONE,
    MODEL,
    WHOLE_ANSWER,
    Ending,
    Reply,
    event,
    scripted_server,
    text_event,
    usage_event,
)

PATH = "/v1/completions"
SETTINGS = ClientSettings("", PATH, timeout_s=60.0, keeps_text=True)


async def send_to(url: str, settings: ClientSettings = SETTINGS) -> RequestRecord:
    client = LoadClient(replace(settings, url=url), time.monotonic)
    async with client:
        answer = Answer()
        begin_s = time.monotonic()
        failure = await client.send(client.prepare(b"{}"), answer)
        planned = plan_of([0.0]).requests[0]
        return answer.record(planned, failure, begin_s, time.monotonic())


def send(*replies: Reply, settings: ClientSettings = SETTINGS) -> RequestRecord:
    """Send one request to a server that gives these replies."""

    async def run() -> RequestRecord:
        async with scripted_server(lambda number: replies[number]) as server:
            return await send_to(server.url, settings)

    return asyncio.run(run())


def failure_of(reply: Reply, settings: ClientSettings = SETTINGS) -> Failure:
    failure = send(reply, settings=settings).failure
    assert failure is not None
    return failure


def test_a_whole_answer_has_its_text_its_times_and_the_servers_counts() -> None:
    record = send(Reply(WHOLE_ANSWER))
    assert record.failure is None
    assert record.text == "abc"
    assert (record.prompt_tokens, record.output_tokens, record.finish_reason) == (7, 3, "length")
    assert record.has_usage
    times_s = [record.sent_s, *record.chunk_times_s, record.ended_s]
    assert times_s == sorted(times_s)
    assert len(record.chunk_times_s) == 3


def test_without_usage_tokens_are_chunks_with_text() -> None:
    role = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    record = send(Reply((role, text_event("a"), text_event("b"), text_event("", "stop"), DONE)))
    assert record.failure is None
    assert record.output_tokens == len(record.chunk_times_s) == 2
    assert not record.has_usage


def test_several_events_in_one_packet_are_all_read() -> None:
    assert send(Reply((b"".join(WHOLE_ANSWER),))).text == "abc"


@pytest.mark.parametrize("last", [DONE, text_event("b", "stop")])
def test_either_a_reason_or_done_makes_an_answer_whole(last: bytes) -> None:
    assert send(Reply((text_event("a"), last))).failure is None


@pytest.mark.parametrize("ending", [Ending.WHOLE, Ending.BREAK])
def test_a_stream_that_ends_early_keeps_what_came(ending: Ending) -> None:
    record = send(Reply((text_event("a"), text_event("b")), ending=ending))
    assert record.failure is not None
    assert record.failure.kind is FailureKind.TRUNCATED
    assert record.text == "ab"
    assert record.output_tokens == 2


@pytest.mark.parametrize(
    ("reply", "kind", "part"),
    [
        (Reply(ending=Ending.BREAK), FailureKind.LOST, "RemoteProtocolError"),
        (Reply((b'{"error": {"message": "bad"}}',), 400), FailureKind.REFUSED, "bad"),
        (Reply((b"not found",), 404), FailureKind.REFUSED, "not found"),
        (Reply((b'{"error": {"message": "full"}}',), 503), FailureKind.SERVER_ERROR, "full"),
        (Reply((), 302, ("location: /",)), FailureKind.MALFORMED, ""),
        (
            Reply((text_event("a"), event({"error": {"message": "gone"}}))),
            FailureKind.STREAM_ERROR,
            "gone",
        ),
        (Reply((b"data: hello\n\n",)), FailureKind.MALFORMED, "'hello'"),
        (Reply((text_event("", "stop"), usage_event(3, 0), DONE)), FailureKind.EMPTY, "no token"),
    ],
)
def test_every_failure_has_its_kind(reply: Reply, kind: FailureKind, part: str) -> None:
    failure = failure_of(reply)
    assert failure.kind is kind
    assert part in failure.message


def test_a_throttled_request_is_not_sent_again_and_says_when_it_could_be() -> None:
    failure = failure_of(Reply((b"{}",), 429, ("retry-after: 7",)))
    assert failure.kind is FailureKind.THROTTLED
    assert (failure.status, failure.retry_after_s) == (429, 7.0)


def test_a_throttled_request_is_sent_again_if_asked_for() -> None:
    throttled = Reply((b"{}",), 429, ("retry-after: 0.001",))
    settings = replace(SETTINGS, num_retries=2)
    record = send(throttled, throttled, Reply(WHOLE_ANSWER), settings=settings)
    assert record.failure is None
    assert record.num_retries == 2
    failed = send(throttled, throttled, throttled, settings=settings)
    assert failed.failure is not None
    assert failed.failure.kind is FailureKind.THROTTLED


def test_a_server_that_falls_silent_is_given_up_after_the_timeout() -> None:
    settings = replace(SETTINGS, timeout_s=0.05)
    record = send(Reply((text_event("a"),), ending=Ending.HOLD), settings=settings)
    assert record.failure is not None
    assert record.failure.kind is FailureKind.TIMEOUT
    assert "within 0.05 s" in record.failure.message


def test_a_port_where_nobody_listens_is_no_connection() -> None:
    async def run() -> RequestRecord:
        async with scripted_server(lambda _: Reply()) as server:
            url = server.url
        return await send_to(url)

    failure = asyncio.run(run()).failure
    assert failure is not None
    assert failure.kind is FailureKind.CONNECT


def test_connections_are_used_again() -> None:
    async def run() -> tuple[int, int]:
        async with scripted_server(lambda _: Reply(WHOLE_ANSWER)) as server:
            client = LoadClient(replace(SETTINGS, url=server.url), time.monotonic)
            async with client:
                for _ in range(3):
                    assert await client.send(client.prepare(b"{}"), Answer()) is None
            return server.num_connections, len(server.bodies)

    assert asyncio.run(run()) == (1, 3)


def test_a_proxy_of_the_environment_is_not_used_and_the_key_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    async def run() -> list[str]:
        async with scripted_server(lambda _: Reply(WHOLE_ANSWER)) as server:
            record = await send_to(server.url, replace(SETTINGS, api_key="secret"))
            assert record.failure is None
            models = await asyncio.to_thread(find_models, server.url, "secret")
            assert models == (MODEL,)
            return server.heads

    heads = asyncio.run(run())
    assert len(heads) == 2
    assert all("authorization: bearer secret" in head.lower() for head in heads)


def test_a_server_that_is_not_there_is_said_at_once_with_what_to_do() -> None:
    with pytest.raises(EngineUnavailableError, match=r"nothing answers at .*start the server"):
        find_models("http://127.0.0.1:1", None)
