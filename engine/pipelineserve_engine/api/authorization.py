"""Who may call the API: bearers of a key from a file, which is read again when it changes.

Only digests of keys are kept, so that no message, log line or dump can show one.
"""

import hmac
import logging
from hashlib import sha256
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_engine.api.errors import ApiError
from pipelineserve_engine.file_versions import FileVersion, version_of

logger = logging.getLogger(__name__)

# Everything else needs a key; these are for Kubernetes and Prometheus.
OPEN_PATHS = frozenset({"/health", "/ready", "/metrics"})
LARGEST_FILE_BYTES = 1 << 20
LEAST_KEY_CHARACTERS = 8

_SCHEME = b"bearer"


_BROKEN = FileVersion(-1, -1, -1)


class KeyFile:
    """The keys of one file, one a line; blank lines mean nothing.

    Raises:
        InvalidInputError: the file cannot be read or holds no usable key.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = _version_of(path)
        self._digests = _read_digests(path)

    def admits(self, key: bytes) -> bool:
        """Whether this is one of the keys; takes as long whichever it is, or if it is none."""
        self._follow_file()
        digest = sha256(key).digest()
        is_known = False
        for known in self._digests:
            is_known |= hmac.compare_digest(digest, known)
        return is_known

    def _follow_file(self) -> None:
        """Read the file again if it changed; one that is broken leaves the keys as they were."""
        try:
            version = _version_of(self._path)
            if version == self._version:
                return
            self._digests = _read_digests(self._path)
        except InvalidInputError as error:
            self._note_broken(error)
            return
        self._version = version
        logger.info("api keys read again: %d keys", len(self._digests))

    def _note_broken(self, error: InvalidInputError) -> None:
        # Once per breakage, not per request; the next good version differs from this one.
        if self._version != _BROKEN:
            logger.error("api keys stay as they were: %s", error)
            self._version = _BROKEN


class KeyGate:
    """ASGI middleware: answers 401 to whoever brings no key, before anything else is looked at."""

    def __init__(self, app: ASGIApp, keys: KeyFile) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if its key is one of the file's."""
        is_free = scope["type"] == "lifespan" or scope.get("path") in OPEN_PATHS
        refusal = None if is_free else self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
            return
        response = refusal.response()
        response.headers["www-authenticate"] = "Bearer"
        await response(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return _unauthorized(
                f"Got {len(given)} Authorization headers, expected one; "
                "send 'Authorization: Bearer KEY' with a key of this server."
            )
        scheme, _, key = given[0].partition(b" ")
        if scheme.lower() != _SCHEME or not key.strip():
            return _unauthorized(
                "The Authorization header has another form than expected; "
                "send 'Authorization: Bearer KEY' with a key of this server."
            )
        if not self._keys.admits(key.strip()):
            return _unauthorized(
                "The key in the Authorization header is none of this server's; "
                "ask whoever runs it for a key that is valid now."
            )
        return None


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key")


def _version_of(path: Path) -> FileVersion:
    try:
        return version_of(path)
    except OSError as error:
        raise _unusable(f"cannot be read ({error.strerror})") from None


def _read_digests(path: Path) -> tuple[bytes, ...]:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise _unusable(f"cannot be read ({error.strerror})") from None
    if len(content) > LARGEST_FILE_BYTES:
        raise _unusable(f"has more than {LARGEST_FILE_BYTES} bytes")
    keys = [line.strip() for line in content.splitlines() if line.strip()]
    if not keys:
        raise _unusable("holds no key")
    for number, key in enumerate(keys, 1):
        if len(key) < LEAST_KEY_CHARACTERS or any(byte <= 0x20 or byte >= 0x7F for byte in key):
            raise _unusable(
                f"key {number}: expected at least {LEAST_KEY_CHARACTERS} printable ASCII "
                "characters without blanks"
            )
    return tuple(sha256(key).digest() for key in keys)


def _unusable(reason: str) -> InvalidInputError:
    text = f"the file {reason}; give the path of a readable file with one key a line"
    return InvalidInputError("the API's keys", [Fault("api_key_file", text)])
