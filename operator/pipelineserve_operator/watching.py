"""Kopf's part: log in, watch, and hand on what an event is about. Nothing else.

Only `on.event` handlers are registered: these put no finalizer and no annotation on any object, so
nothing hangs when the operator is away.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import kopf
from kopf._core.engines.peering import Identity
from kubernetes.client import Configuration

from pipelineserve.errors import PipelineServeError
from pipelineserve_operator.cluster import Kind
from pipelineserve_operator.cluster.kinds import CHILDREN
from pipelineserve_operator.cluster.rest import PAGE_SIZE
from pipelineserve_operator.reconcile import Key
from pipelineserve_operator.render import JsonObject
from pipelineserve_operator.render.labels import NAME

_IS_GONE = "DELETED"
_WATCHED_CHILDREN = (*CHILDREN, Kind.POD)


class WatchEndedError(PipelineServeError):
    """A watch has ended, which it never should."""

    def __init__(self, failures: list[BaseException]) -> None:
        reasons = "; ".join(map(repr, failures)) or "for no reason that it gave"
        super().__init__(f"expected Kopf to watch for ever, but it ended: {reasons}")


class Hearing:
    """What the watches have brought, in the thread of the event loop.

    Args:
        heard: is told whose child has changed, or which resource is gone.
        heard_of: gets a resource as it has become.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        heard: Callable[[Key], None],
        heard_of: Callable[[JsonObject], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._heard = heard
        self._heard_of = heard_of
        self._clock = clock
        self._last_s: float | None = None

    def age_s(self) -> float | None:
        """Time since the last event; None before the first."""
        return None if self._last_s is None else self._clock() - self._last_s

    def take(self, namespace: str | None, name: str | None) -> None:
        """An event about a resource that is gone, or about what belongs to one, or says so."""
        self._last_s = self._clock()
        if namespace and name:
            self._heard(Key(namespace, name))

    def take_resource(self, resource: JsonObject) -> None:
        """A resource is there, or has changed."""
        self._last_s = self._clock()
        self._heard_of(resource)


class Handlers:
    """What Kopf calls, in a thread of its own; `loop` is that of `hearing`."""

    def __init__(self, hearing: Hearing, loop: asyncio.AbstractEventLoop) -> None:
        self._hearing = hearing
        self._loop = loop

    async def resource(
        self, namespace: str | None, name: str | None, body: Any, event: Any, **_: Any
    ) -> None:
        """An event about a resource."""
        if event["type"] == _IS_GONE:
            self._loop.call_soon_threadsafe(self._hearing.take, namespace, name)
        else:
            self._loop.call_soon_threadsafe(self._hearing.take_resource, dict(body))

    async def child(self, namespace: str | None, labels: Any, **_: Any) -> None:
        """An event about what says that it belongs to one."""
        self._loop.call_soon_threadsafe(self._hearing.take, namespace, labels.get(NAME))


def login_of(configuration: Configuration) -> kopf.ConnectionInfo:
    """Kopf's connection to where ours leads; asked for again whenever a token has ended."""
    authorization = configuration.auth_settings().get("BearerToken", {}).get("value", "")
    scheme, _, token = authorization.partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        scheme=scheme or None,
        token=token or None,
    )


def registry_for(handlers: Handlers, configuration: Configuration) -> kopf.OperatorRegistry:
    """Handlers that hand on, and how to log in."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def _log_in(**_: Any) -> kopf.ConnectionInfo:
        return login_of(configuration)

    served = Kind.PIPELINE_SERVE
    kopf.on.event(served.group, served.version, served.plural, id="resource", registry=registry)(
        handlers.resource
    )
    for kind in _WATCHED_CHILDREN:
        kopf.on.event(
            kind.group,
            kind.version,
            kind.plural,
            id=f"child-{kind.plural}",
            labels={NAME: kopf.PRESENT},
            registry=registry,
        )(handlers.child)
    return registry


def watch_settings() -> kopf.OperatorSettings:
    """Settings under which a watch that goes silent is noticed, and nothing is written."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.peering.standalone = True
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.watching.chunk_size = PAGE_SIZE
    for kind in _WATCHED_CHILDREN:
        # What others have is not even sent.
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = NAME
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = (1, 2, 4, 8, 10, 10, 10)
    settings.queueing.worker_limit = None
    # Until then Kopf holds the object of an event that we have handed on long ago: after a start,
    # all objects of all resources.
    settings.queueing.idle_timeout = 0.1
    settings.execution.default_backoff = 15
    settings.execution.max_workers = 4
    settings.scanning.disabled = True
    # Our own end is quicker, and lets the Lease go first.
    settings.process.ultimate_exiting_timeout = None
    settings.persistence.finalizer = "pipelineserve.dev/operator"
    return settings


async def watch(
    hearing: Hearing, namespaces: tuple[str, ...], configuration: Configuration, identity: str
) -> None:
    """Until cancelled. Ends with an error when a watch cannot go on: start the process anew.

    Kopf has a thread and an event loop of its own: at its end it cancels every task of its loop,
    whoever's it is, and takes its time; and it takes the signals of the main thread.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(_kopf(Handlers(hearing, loop), namespaces, configuration, identity))
        except BaseException as error:  # noqa: BLE001 # it is raised where it is waited for
            failures.append(error)
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, name="kopf", daemon=True).start()
    await ended.wait()
    raise WatchEndedError(failures)


async def _kopf(
    handlers: Handlers,
    namespaces: tuple[str, ...],
    configuration: Configuration,
    identity: str,
) -> None:
    await kopf.operator(
        registry=registry_for(handlers, configuration),
        settings=watch_settings(),
        namespaces=namespaces,
        clusterwide=not namespaces,
        standalone=True,
        # Without one, Kopf asks the system for a user's name, which a pod may not have.
        identity=Identity(identity),
    )
