"""What an event comes to: a resource as it has become, or a place to look at."""

import asyncio
import selectors
from typing import Any

from kopf._cogs.structs import references
from kopf._core.reactor import queueing

from pipelineserve_operator.reconcile import Key
from pipelineserve_operator.render import JsonObject
from pipelineserve_operator.render.labels import NAME
from pipelineserve_operator.watching import Handlers, Hearing, watch_settings

BODY = {"metadata": {"namespace": "models", "name": "small", "resourceVersion": "7"}}


class Heard:
    """What a hearing was told, by handlers that Kopf would call."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.resources: list[JsonObject] = []
        self.now_s = 10.0
        self.hearing = Hearing(self.keys.append, self.resources.append, lambda: self.now_s)

    def resource(self, kind: str | None) -> None:
        """An event about the resource."""
        event: dict[str, Any] = {"type": kind, "object": BODY}
        self._run(lambda h: h.resource(namespace="models", name="small", body=BODY, event=event))

    def child(self, labels: dict[str, str]) -> None:
        """An event about something with these labels."""
        self._run(lambda h: h.child(namespace="models", labels=labels))

    def _run(self, call: Any) -> None:
        async def scenario() -> None:
            await call(Handlers(self.hearing, asyncio.get_running_loop()))
            await asyncio.sleep(0)  # what was handed to the loop is called

        asyncio.run(scenario())


def test_a_resource_that_is_listed_made_or_changed_is_handed_on_as_it_is() -> None:
    heard = Heard()
    for kind in (None, "ADDED", "MODIFIED"):
        heard.resource(kind)
    assert heard.resources == [BODY, BODY, BODY]
    assert heard.keys == []


def test_one_that_is_gone_is_a_place_to_look_at() -> None:
    heard = Heard()
    heard.resource("DELETED")
    assert heard.resources == []
    assert heard.keys == [Key("models", "small")]


def test_a_child_is_about_the_resource_that_its_label_names() -> None:
    heard = Heard()
    heard.child({NAME: "small"})
    heard.child({})
    assert heard.keys == [Key("models", "small")]


def test_every_event_tells_that_the_watch_lives() -> None:
    heard = Heard()
    assert heard.hearing.age_s() is None
    heard.child({})
    heard.now_s = 12.5
    assert heard.hearing.age_s() == 2.5
    heard.resource("MODIFIED")
    assert heard.hearing.age_s() == 0.0


class _NoWaiting(selectors.SelectSelector):
    """Counts the time that an event loop would have waited."""

    waited_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.waited_s += timeout or 0.0
        return super().select(0.0)


def test_kopf_holds_an_object_no_longer_than_it_is_handed_on() -> None:
    """Else all objects of all resources are there at once after a start."""
    handed_on: list[Any] = []

    async def processor(*, raw_event: Any, **_: Any) -> None:
        handed_on.append(raw_event["object"])

    async def scenario() -> None:
        key = (resource, queueing.ObjectUid("uid"))
        stream = queueing.Stream(asyncio.Queue(), asyncio.Event())
        event: Any = {"type": None, "object": BODY}
        stream.backlog.put_nowait(event)
        streams = {key: stream}
        await queueing.worker(
            signaller=asyncio.Condition(),
            settings=watch_settings(),
            processor=processor,
            streams=streams,
            key=key,
        )
        assert streams == {}

    resource = references.Resource("apps", "v1", "statefulsets")
    selector = _NoWaiting()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.waited_s  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())
    assert handed_on == [BODY]
    assert selector.waited_s < 0.5
