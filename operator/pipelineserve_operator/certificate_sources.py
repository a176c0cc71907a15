"""Where the certificate that sidecars see comes from: made by the operator, or mounted."""

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from pipelineserve_operator.attend import CertificateUnavailableError, KeyPair, MountedPair
from pipelineserve_operator.certificate import OwnCertificate, Stored
from pipelineserve_operator.cluster import ApiError, Cluster, Kind
from pipelineserve_operator.render import JsonObject

logger = logging.getLogger(__name__)

_RETRY_S = 5.0
_MOUNTED_LOOK_S = 30.0


class Certificate(Protocol):
    """The server's certificate, and the CAs that sidecars are to trust."""

    def pair(self) -> KeyPair:
        """Raises `CertificateUnavailableError` while there is none."""

    def bundle(self) -> str:
        """PEM text; empty while there is none."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Keep it good until cancelled; `changed` is called when the bundle is another one."""


class AuthoritySecret:
    """The operator's CAs in a Secret of its own namespace."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name

    async def read(self) -> Stored | None:
        """What it holds; None if there is none. Raises OSError."""
        try:
            found = await self._cluster.get(Kind.SECRET, self._namespace, self._name)
        except ApiError as error:
            raise OSError(str(error)) from error
        if found is None:
            return None
        data = {name: _decoded(text) for name, text in (found.get("data") or {}).items()}
        return Stored(data, found["metadata"]["resourceVersion"])

    async def write(self, data: Mapping[str, str], over: str | None) -> bool:
        """Put this there; False if somebody else was faster. Raises OSError."""
        document = self._document(data)
        try:
            if over is None:
                return await self._cluster.create(document)
            # What others wrote beside it stays: the release that the Secret belongs to, for one.
            changes = {"metadata": {"resourceVersion": over}, "data": document["data"]}
            await self._cluster.merge(Kind.SECRET, self._namespace, self._name, changes)
        except ApiError as error:
            if error.is_conflict:
                return False
            raise OSError(str(error)) from error
        return True

    def _document(self, data: Mapping[str, str]) -> JsonObject:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "type": "Opaque",
            "data": {name: base64.b64encode(text.encode()).decode() for name, text in data.items()},
        }


class MadeCertificate:
    """One that the operator makes by itself; the first attempt is repeated until it succeeds."""

    def __init__(self, own: OwnCertificate) -> None:
        self._own = own

    def pair(self) -> KeyPair:
        """The present one."""
        return self._own.pair()

    def bundle(self) -> str:
        """Of its CAs."""
        return self._own.bundle()

    async def run(self, changed: Callable[[], None]) -> None:
        """Make it, then renew it in time."""
        while not self._own.bundle():
            try:
                await self._own.renew()
            except (OSError, CertificateUnavailableError) as error:
                logger.warning("no certificate for sidecars yet", extra={"error": str(error)})
                await asyncio.sleep(_RETRY_S)
        changed()
        await self._own.run(changed)


class KeptCertificate:
    """One that somebody else keeps in files, as cert-manager does."""

    def __init__(self, mounted: MountedPair) -> None:
        self._mounted = mounted
        self._bundle = ""

    def pair(self) -> KeyPair:
        """The present one."""
        return self._mounted.pair()

    def bundle(self) -> str:
        """The last good one."""
        return self._bundle

    async def run(self, changed: Callable[[], None]) -> None:
        """Look at the files now and then."""
        while True:
            try:
                bundle = self._mounted.bundle()
            except CertificateUnavailableError as error:
                logger.warning("no CAs for sidecars", extra={"error": str(error)})
            else:
                if bundle != self._bundle:
                    self._bundle = bundle
                    changed()
            await asyncio.sleep(_MOUNTED_LOOK_S if self._bundle else _RETRY_S)


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode("ascii", "replace")
