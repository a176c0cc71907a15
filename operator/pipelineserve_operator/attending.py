"""The sidecars' server as a part of the operator: it listens while this operator leads."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from pipelineserve.api import PipelineServeSpec
from pipelineserve_operator.attend import (
    AttendServer,
    AttendSettings,
    CertificateUnavailableError,
    PublishedKeys,
    Refusal,
    Roster,
)
from pipelineserve_operator.certificate_sources import Certificate
from pipelineserve_operator.cluster import ApiError
from pipelineserve_operator.findings import ResourceReport
from pipelineserve_operator.link import Offered, Report
from pipelineserve_operator.merge import merge
from pipelineserve_operator.render import JsonObject, places

logger = logging.getLogger(__name__)

# Until the certificate is there, nothing can be served; its Secret may be a moment away.
_RETRY_S = 1.0
_LEADING_LOOK_S = 0.5


class Publisher(Protocol):
    """Reads what an API server publishes for everybody."""

    async def document(self, path: str) -> JsonObject:
        """Raises `ApiError` when it refuses, or does not answer."""


class Attending:
    """Listens to sidecars while this operator leads; a `Link` and `Sidecars` for reconciling.

    Args:
        port: to listen on, on every address.
        certificate: of the server.
        publisher: of the keys that sidecars' tokens are signed with.
        held: set while this operator leads; others would tell sidecars nothing.
        changed: called with a resource's uid when its sidecars said something new.
        bundle_changed: called when sidecars must learn of other CAs.
    """

    def __init__(
        self,
        port: int,
        certificate: Certificate,
        publisher: Publisher,
        held: asyncio.Event,
        *,
        changed: Callable[[str], None],
        bundle_changed: Callable[[], None],
    ) -> None:
        self._address = f"[::]:{port}"
        self._certificate = certificate
        self._held = held
        self._bundle_changed = bundle_changed
        self._roster = Roster(changed, time.monotonic)
        self._keys = PublishedKeys(lambda path: _published(publisher, path), time.monotonic)
        self._began_at_s = time.monotonic()
        self._has_bundle = asyncio.Event()
        self._server: AttendServer | None = None

    @property
    def num_sidecars(self) -> int:
        """Sidecars whose stream is open."""
        return self._roster.num_streams

    @property
    def refusals(self) -> Mapping[Refusal, int]:
        """How often each was given since this operator leads."""
        return self._server.refusals if self._server is not None else {}

    async def first_bundle(self, patience_s: float) -> None:
        """Wait until there are CAs, or for so long: a pod that starts without them waits longer."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_bundle.wait(), patience_s)

    def bundle(self) -> str:
        """The CAs that sidecars are to trust."""
        return self._certificate.bundle()

    def offer(self, offered: Offered) -> None:
        """Tell this to the resource's sidecars, now and whenever one comes."""
        self._roster.offer(offered)

    def withdraw(self, uid: str) -> None:
        """The resource is gone."""
        self._roster.withdraw(uid)

    def reports(self, uid: str) -> tuple[Report, ...]:
        """The latest word of each of its sidecars."""
        return self._roster.reports(uid)

    def report(self, uid: str, spec: PipelineServeSpec) -> ResourceReport | None:
        """What they come to, times in seconds since 1970."""
        now_s = time.monotonic()
        merged = merge(self._roster.reports(uid), spec, now_s=now_s, began_at_s=self._began_at_s)
        return since_1970(merged, time.time() - now_s)

    async def run(self) -> None:
        """Until cancelled.

        Raises:
            AddressTakenError: the port cannot be listened on.
        """
        await asyncio.gather(
            self._certificate.run(self._tell_bundle), self._keys.run(), self._serve()
        )

    def _tell_bundle(self) -> None:
        self._has_bundle.set()
        self._bundle_changed()

    async def _serve(self) -> None:
        while True:
            await self._held.wait()
            try:
                server = self._made_server()
            except CertificateUnavailableError:
                await asyncio.sleep(_RETRY_S)  # whoever makes it says why there is none
                continue
            self._server, self._began_at_s = server, time.monotonic()
            await server.start()
            try:
                while self._held.is_set():  # noqa: ASYNC110 # no event says that it is cleared
                    await asyncio.sleep(_LEADING_LOOK_S)
            finally:
                self._server = None
                await server.stop()

    def _made_server(self) -> AttendServer:
        settings = AttendSettings(self._address, places.TOKEN_AUDIENCE)
        return AttendServer(settings, self._roster, self._keys, self._certificate)


def since_1970(report: ResourceReport, ahead_s: float) -> ResourceReport:
    """A report whose clock is behind by so much."""
    at_s = report.look_again_at_s
    return report if at_s is None else replace(report, look_again_at_s=at_s + ahead_s)


async def _published(publisher: Publisher, path: str) -> bytes:
    try:
        return json.dumps(await publisher.document(path)).encode()
    except ApiError as error:
        raise OSError(str(error)) from error
