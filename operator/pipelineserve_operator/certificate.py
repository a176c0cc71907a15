"""The operator's own certificate, where no other is mounted: its CAs are kept in a Secret.

Several operators may run, and the Secret outlives each of them; what lies in it decides.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pipelineserve_operator.attend.certificates import CertificateUnavailableError, KeyPair
from pipelineserve_operator.authorities import (
    Authority,
    bundle,
    is_pair_due,
    plan_authorities,
    signer,
)
from pipelineserve_operator.issuing import issue_pair, make_authority, read_authorities

logger = logging.getLogger(__name__)

CERTIFICATES = "ca.crt"
KEYS = "ca.key"

_PERIOD_S = 3600.0
_MAX_TRIES = 5


@dataclass(frozen=True, slots=True)
class Stored:
    """What the Secret holds, and the version that a later write must find there."""

    data: Mapping[str, str]
    version: str


class AuthorityStore(Protocol):
    """The Secret, in the operator's own namespace."""

    async def read(self) -> Stored | None:
        """What it holds; None if there is none.

        Raises:
            OSError: it cannot be told.
        """

    async def write(self, data: Mapping[str, str], over: str | None) -> bool:
        """Put this there; False if what is there is no longer the version `over`.

        Args:
            data: all of it.
            over: the version that was read; None: there must be no Secret yet.

        Raises:
            OSError: it cannot be written.
        """


class OwnCertificate:
    """Keeps CAs and a certificate of the newest that sidecars know.

    Args:
        store: of the CAs.
        unix_s: seconds since 1970.
    """

    def __init__(self, store: AuthorityStore, unix_s: Callable[[], float]) -> None:
        self._store = store
        self._unix_s = unix_s
        self._authorities: tuple[Authority, ...] = ()
        self._signer: Authority | None = None
        self._pair: KeyPair | None = None
        self._ends_at_s = 0.0

    def pair(self) -> KeyPair:
        """The present certificate.

        Raises:
            CertificateUnavailableError: `renew` has not come to an end yet.
        """
        if self._pair is None:
            raise CertificateUnavailableError("the operator's certificate is not made yet")
        return self._pair

    def bundle(self) -> str:
        """The CAs that sidecars are to trust, as PEM text."""
        return bundle(self._authorities)

    async def run(self, changed: Callable[[], None]) -> None:
        """Renew in time, until cancelled.

        Args:
            changed: is called when the bundle is another one.
        """
        while True:
            before = self.bundle()
            try:
                await self.renew()
            except (OSError, CertificateUnavailableError) as error:
                # What is served is good for days yet.
                logger.warning("the operator's certificate cannot be renewed: %s", error)
            if self.bundle() != before:
                changed()
            await asyncio.sleep(_PERIOD_S)

    async def renew(self) -> None:
        """Do what is due now; nothing is written if nothing is.

        Raises:
            OSError: the Secret cannot be read or written.
            CertificateUnavailableError: what lies in it is of no use.
        """
        now_s = self._unix_s()
        self._authorities = await self._agreed_authorities(now_s)
        by = signer(self._authorities, now_s)
        if self._pair is None or by != self._signer or is_pair_due(self._ends_at_s, now_s):
            self._pair, self._ends_at_s = issue_pair(by, now_s)
            self._signer = by
            logger.info("certificate for sidecars made")

    async def _agreed_authorities(self, now_s: float) -> tuple[Authority, ...]:
        """What lies in the Secret once it is as it should be; others may write it too."""
        for _ in range(_MAX_TRIES):
            stored = await self._store.read()
            known = () if stored is None else _authorities_in(stored)
            plan = plan_authorities(known, now_s)
            wanted = (*plan.kept, make_authority(now_s)) if plan.makes_one else plan.kept
            if wanted == known:
                return known
            data = {CERTIFICATES: bundle(wanted), KEYS: "".join(one.key for one in wanted)}
            if await self._store.write(data, None if stored is None else stored.version):
                logger.info("CAs of the operator's certificate written: %d", len(wanted))
                return wanted
        raise CertificateUnavailableError(
            f"the Secret of the operator's CAs was changed by others {_MAX_TRIES} times in a row; "
            "let only operators of this release write it"
        )


def _authorities_in(stored: Stored) -> tuple[Authority, ...]:
    try:
        return read_authorities(stored.data.get(CERTIFICATES, ""), stored.data.get(KEYS, ""))
    except ValueError as error:
        raise CertificateUnavailableError(
            f"the Secret of the operator's CAs is of no use: {error}; delete it, and another is "
            "made (sidecars trust it within a minute or two)"
        ) from None
