"""The keys that the cluster signs service-account tokens with, as its API server publishes them."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from jwt import PyJWK, PyJWTError

from pipelineserve.errors import PipelineServeError

logger = logging.getLogger(__name__)

ISSUER_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/openid/v1/jwks"
# What Kubernetes can sign with; none of them lets a public key pass for a shared secret.
ALGORITHMS = frozenset({"RS256", "ES256", "ES384", "ES512"})

# Keys that are no longer published must be forgotten some time.
PERIOD_S = 600.0
# Whoever shows tokens of unknown keys makes us ask the API server no more often than this.
RETRY_S = 10.0
_PATIENCE_S = 5.0
_MAX_DOCUMENT_BYTES = 1 << 20
_MAX_KEYS = 100

ReadPath = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key, what it signs with, and whose tokens it signs."""

    issuer: str
    algorithm: str
    key: PyJWK


class KeysUnavailableError(PipelineServeError):
    """The cluster's keys could not be read yet; the same token may be good later."""


class Keys(Protocol):
    """Where signing keys are found."""

    async def find(self, key_id: str) -> SigningKey | None:
        """The key of this id; None if the cluster has none.

        Raises:
            KeysUnavailableError: no key was ever read.
        """


class PublishedKeys:
    """Keys read from the API server; the last good ones stay while it is away.

    Args:
        read: gets the body at a path of the API server; raises OSError if it cannot be had.
        clock_s: a monotonic clock.
    """

    def __init__(self, read: ReadPath, clock_s: Callable[[], float]) -> None:
        self._read = read
        self._clock_s = clock_s
        self._lock = asyncio.Lock()
        self._keys: Mapping[str, SigningKey] | None = None
        self._tried_at_s: float | None = None
        self._problem = "they were not asked for yet"

    async def run(self) -> None:
        """Read them now and then, so that withdrawn ones are forgotten, until cancelled."""
        while True:
            async with self._lock:
                await self._refresh()
            await asyncio.sleep(PERIOD_S if not self._problem else RETRY_S)

    async def find(self, key_id: str) -> SigningKey | None:
        """The key of this id; an unknown one is asked for, at most every `RETRY_S`.

        Raises:
            KeysUnavailableError: no key was ever read.
        """
        if self._is_missing(key_id):
            async with self._lock:
                if self._is_missing(key_id) and self._may_try():
                    await self._refresh()
        if self._keys is None:
            raise KeysUnavailableError(f"the cluster's keys cannot be read: {self._problem}")
        return self._keys.get(key_id)

    def _is_missing(self, key_id: str) -> bool:
        return self._keys is None or key_id not in self._keys

    def _may_try(self) -> bool:
        return self._tried_at_s is None or self._clock_s() - self._tried_at_s >= RETRY_S

    async def _refresh(self) -> None:
        self._tried_at_s = self._clock_s()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                described = await self._read(ISSUER_PATH)
                published = await self._read(KEYS_PATH)
            self._keys = parse_keys(described, published)
        except (OSError, ValueError) as error:
            self._problem = str(error) or f"no answer within {_PATIENCE_S:g} s"
            logger.warning("the cluster's keys cannot be read: %s", self._problem)
        else:
            self._problem = ""


def parse_keys(described: bytes, published: bytes) -> dict[str, SigningKey]:
    """Keys by id, from what describes the issuer and the set of its keys.

    Keys that no token of a service account can be signed with are left out.

    Raises:
        ValueError: says which document is not as it should be.
    """
    issuer = _object(ISSUER_PATH, described).get("issuer")
    if not isinstance(issuer, str) or not issuer:
        raise ValueError(f"{ISSUER_PATH}: expected the text issuer, got {_kind(issuer)}")
    entries = _object(KEYS_PATH, published).get("keys")
    if not isinstance(entries, list) or len(entries) > _MAX_KEYS:
        raise ValueError(f"{KEYS_PATH}: expected a list of at most {_MAX_KEYS} keys")
    keys = {key_id: key for entry in entries for key_id, key in _usable(issuer, entry)}
    if not keys:
        raise ValueError(f"{KEYS_PATH}: expected a key of {sorted(ALGORITHMS)}, found none")
    return keys


def _usable(issuer: str, entry: object) -> tuple[tuple[str, SigningKey], ...]:
    if not isinstance(entry, dict) or not isinstance(key_id := entry.get("kid"), str):
        return ()
    try:
        key = PyJWK.from_dict(entry)
    except (PyJWTError, ValueError):
        return ()  # of a kind that is not known here; a token of it is refused by its key's id
    if key.algorithm_name not in ALGORITHMS:
        return ()
    return ((key_id, SigningKey(issuer, key.algorithm_name, key)),)


def _object(path: str, text: bytes) -> dict[str, Any]:
    if len(text) > _MAX_DOCUMENT_BYTES:
        raise ValueError(f"{path}: expected at most {_MAX_DOCUMENT_BYTES} bytes, got {len(text)}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path}: expected an object, got {_kind(document)}")  # noqa: TRY004
    return document


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
