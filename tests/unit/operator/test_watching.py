"""What an event comes to: a resource as it has become, or a place to look at."""

import asyncio
from typing import Any

from pipelineserve_operator.reconcile import Key
from pipelineserve_operator.render import JsonObject
from pipelineserve_operator.render.labels import NAME
from pipelineserve_operator.watching import Handlers, Hearing

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
