"""All of the operator in one event loop: lease, watches, queue, probes, and a quick end."""

import asyncio
import logging
import os
import random
import secrets
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import kubernetes

from pipelineserve.errors import InvalidInputError
from pipelineserve_operator.applying import Applier
from pipelineserve_operator.attend import AddressTakenError, MountedPair
from pipelineserve_operator.attending import Attending
from pipelineserve_operator.certificate import OwnCertificate
from pipelineserve_operator.certificate_sources import (
    AuthoritySecret,
    Certificate,
    KeptCertificate,
    MadeCertificate,
)
from pipelineserve_operator.cluster import ApiError, Kind
from pipelineserve_operator.cluster.rest import ApiServer, Rates, RestCluster
from pipelineserve_operator.events import Recorder
from pipelineserve_operator.lease import Leadership
from pipelineserve_operator.logs import start_logging
from pipelineserve_operator.monitors import Monitors
from pipelineserve_operator.probes import metric_pages, probe_pages, serving
from pipelineserve_operator.reconcile import Around, BlockedError, Key, Reconciler
from pipelineserve_operator.render import JsonObject, OperatorSettings
from pipelineserve_operator.settings import LogFormat, ProcessSettings, parse_settings
from pipelineserve_operator.telemetry import Gauges, Outcome, Telemetry
from pipelineserve_operator.unlinked import Unlinked
from pipelineserve_operator.watching import Hearing, watch
from pipelineserve_operator.work_queue import WorkQueue, spread_s

logger = logging.getLogger("pipelineserve_operator")

_RESYNC_JITTER_RATIO = 0.2
# Several objects of a resource change together; one look sees them all.
_GATHER_S = 0.05
_LIST_PAUSE_S = 2.0
# Resources are looked after without a certificate too.
_CERTIFICATE_PATIENCE_S = 10.0
# What must be done within the two seconds that an end may take.
_GOODBYE_S = 1.0
_LISTENING_ADVICE = "choose another one with --probe-port and --metrics-port"


def main() -> NoReturn:
    """Run until a signal; exit status 2 for settings that cannot be, 1 if something broke."""
    try:
        settings = parse_settings(sys.argv[1:])
    except InvalidInputError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    start_logging(LogFormat(settings.log_format))
    status = asyncio.run(_run(settings))
    sys.stderr.flush()
    # Threads may wait for an API server that does not answer, and watch; nothing waits for them.
    os._exit(status)


async def _run(settings: ProcessSettings) -> int:
    try:
        await Operator(settings, connection(settings)).run()
    except (OSError, AddressTakenError, kubernetes.config.ConfigException) as error:
        logger.critical("operator cannot run", extra={"error": str(error)})
        return 1
    except Exception:
        logger.critical("operator broke", exc_info=True)
        return 1
    return 0


def connection(settings: ProcessSettings) -> kubernetes.client.Configuration:
    """How the API server is reached.

    Raises:
        ConfigException: neither a kubeconfig nor a pod's account is there.
    """
    configuration = kubernetes.client.Configuration()
    if settings.kubeconfig:
        kubernetes.config.load_kube_config(settings.kubeconfig, client_configuration=configuration)
    else:
        kubernetes.config.load_incluster_config(client_configuration=configuration)
    configuration.connection_pool_maxsize = Rates().threads
    return configuration


class Operator:
    """Everything of one process."""

    def __init__(
        self, settings: ProcessSettings, configuration: kubernetes.client.Configuration
    ) -> None:
        self._settings = settings
        self._configuration = configuration
        self._identity = settings.identity or f"{socket.gethostname()}-{secrets.token_hex(4)}"
        chance = random.Random()  # noqa: S311 # it spreads looks, it guards nothing
        rates = Rates(settings.requests_per_second, 2.0 * settings.requests_per_second)
        self._cluster = RestCluster(ApiServer(configuration), rates)
        self._leadership = self._lease()
        self._monitors = Monitors(self._cluster)
        self._is_listed = False
        self._stop = asyncio.Event()
        self._hearing = Hearing(self._heard, self._heard_of)
        applier = Applier(self._cluster, secrets.token_bytes, self._leadership.held.is_set)
        recorder = Recorder(self._cluster, time.time)
        self._attending = self._link() if settings.operator_address else None
        link = self._attending or Unlinked()
        self._reconciler = Reconciler(
            Around(
                cluster=self._cluster,
                applier=applier,
                recorder=recorder,
                link=link,
                sidecars=link,
                settings=self._rendering,
                monitors=lambda: self._monitors.kinds,
                clock=time.time,
                resync_s=lambda: spread_s(settings.resync_seconds, _RESYNC_JITTER_RATIO, chance),
            )
        )
        self._queue: WorkQueue[Key] = WorkQueue(
            self._look,
            self._leadership.held,
            time.monotonic,
            chance,
            max_at_once=settings.workers,
        )
        self._telemetry = Telemetry(
            Gauges(
                num_due=lambda: self._queue.num_due,
                num_resources=lambda: self._reconciler.num_resources,
                num_writes=lambda: applier.num_writes,
                num_requests=lambda: self._cluster.num_requests,
                num_events_dropped=lambda: recorder.num_dropped,
                leads=self._leadership.held.is_set,
                watch_age_s=self._hearing.age_s,
                num_sidecars=lambda: self._attending.num_sidecars if self._attending else 0,
                refusals=lambda: self._attending.refusals if self._attending else {},
            ),
            metadata.version("pipelineserve"),
        )

    async def run(self) -> None:
        """Work until a signal, or until something breaks, which is raised."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        async with AsyncExitStack() as stack:
            await self._serve_probes(stack)
            tasks = [asyncio.create_task(part) for part in self._work()]
            stopping = asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()  # raises what broke
            finally:
                await _ended([*tasks, stopping])
                self._cluster.close()

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        attending = [] if self._attending is None else [self._attending.run()]
        return [
            self._leadership.run(),
            self._queue.run(),
            self._list_then_watch(),
            self._monitors.run(self._look_at_all),
            *attending,
        ]

    async def _serve_probes(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        pages = (
            (settings.probe_port, probe_pages(lambda: self._is_listed)),
            (settings.metrics_port, metric_pages(self._telemetry.registry)),
        )
        try:
            ports = [
                await stack.enter_async_context(serving(settings.probe_host, port, served))
                for port, served in pages
            ]
        except OSError as error:
            raise OSError(f"cannot listen: {error}; {_LISTENING_ADVICE}") from error
        logger.info("operator started", extra={"probe_port": ports[0], "metrics_port": ports[1]})

    async def _list_then_watch(self) -> None:
        """Kopf gives up on a kind that it does not find; so it starts once the kind is there."""
        if self._attending is not None:
            await self._attending.first_bundle(_CERTIFICATE_PATIENCE_S)
        while not self._is_listed:
            try:
                await self._list()
            except ApiError as error:
                logger.warning("resources not listed", extra={"error": str(error)})
                await asyncio.sleep(_LIST_PAUSE_S)
        await watch(
            self._hearing,
            self._settings.namespaces,
            self._configuration,
            self._identity,
        )

    async def _list(self) -> None:
        await self._monitors.look()
        for namespace in self._settings.namespaces or ("",):
            async for page in self._cluster.pages(Kind.PIPELINE_SERVE, namespace):
                for one in page:
                    self._heard_of(one)
        self._is_listed = True

    def _heard(self, key: Key) -> None:
        self._reconciler.touch(key)
        self._queue.add(key, _GATHER_S)

    def _heard_of(self, resource: JsonObject) -> None:
        self._reconciler.hear_of(resource)
        self._queue.add(_key(resource), _GATHER_S)

    async def _look(self, key: Key) -> float | None:
        began_s, outcome = time.monotonic(), Outcome.FAILED
        try:
            pause_s = await self._reconciler.look(key)
        except BlockedError:
            outcome = Outcome.BLOCKED
            raise
        else:
            outcome = Outcome.DONE
            return pause_s
        finally:
            self._telemetry.looked(outcome, time.monotonic() - began_s)

    def _link(self) -> Attending:
        return Attending(
            self._settings.attend_port,
            self._certificate(),
            self._cluster,
            self._leadership.held,
            changed=self._sidecar_said,
            bundle_changed=self._look_at_all,
        )

    def _certificate(self) -> Certificate:
        settings = self._settings
        if settings.certificate_folder:
            return KeptCertificate(MountedPair(Path(settings.certificate_folder)))
        store = AuthoritySecret(self._cluster, self._own_namespace, settings.authority_secret)
        return MadeCertificate(OwnCertificate(store, time.time))

    def _sidecar_said(self, uid: str) -> None:
        """No reason to read anything anew: what was read last is judged with it."""
        key = self._reconciler.key_of(uid)
        if key is not None:
            self._queue.add(key, _GATHER_S)

    def _look_at_all(self) -> None:
        for key in self._reconciler.keys:
            self._heard(key)

    @property
    def _own_namespace(self) -> str:
        """Where the operator's own objects are."""
        return self._settings.lease_namespace or self._settings.namespaces[0]

    def _lease(self) -> Leadership:
        settings = self._settings
        return Leadership(
            self._cluster,
            self._own_namespace,
            settings.lease_name,
            self._identity,
            clock=time.monotonic,
            wall_clock=time.time,
        )

    def _rendering(self) -> OperatorSettings:
        """Read anew for each look: the CAs change while the process runs."""
        settings = self._settings
        place = settings.monitoring_namespace
        return OperatorSettings(
            engine_image=settings.engine_image,
            controller_image=settings.controller_image,
            sglang_image=settings.sglang_image,
            image_pull_policy=settings.image_pull_policy,
            operator_address=settings.operator_address,
            ca_bundle="" if self._attending is None else self._attending.bundle(),
            version=metadata.version("pipelineserve"),
            user_id=settings.user_id or None,
            listen_host=settings.listen_host,
            has_pod_monitors=Kind.POD_MONITOR in self._monitors.kinds,
            has_prometheus_rules=Kind.PROMETHEUS_RULE in self._monitors.kinds,
            monitoring_peers=(_peer(place),) if place else (),
        )


def _peer(namespace: str) -> JsonObject:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


def _key(resource: JsonObject) -> Key:
    return Key(resource["metadata"]["namespace"], resource["metadata"]["name"])


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel, and give them a moment to say goodbye."""
    every = list(tasks)
    for task in every:
        task.cancel()
    await asyncio.wait(every, timeout=_GOODBYE_S)
