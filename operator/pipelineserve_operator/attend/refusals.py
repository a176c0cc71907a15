"""Why a sidecar is turned away, and what is kept of it: counts, and few log lines."""

import logging
from collections import Counter
from collections.abc import Callable
from enum import Enum

from pipelineserve.errors import PipelineServeError

logger = logging.getLogger(__name__)

_WINDOW_S = 60.0
# A line for each peer and window, and no more than these in all.
_MAX_LINES = 30


class Refusal(Enum):
    """One member per cause."""

    NO_TOKEN = "no_token"  # noqa: S105 # a cause's name
    NOT_A_TOKEN = "not_a_token"  # noqa: S105 # a cause's name
    OTHER_ALGORITHM = "other_algorithm"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    OTHER_ISSUER = "other_issuer"
    OTHER_AUDIENCE = "other_audience"
    NOT_YET_VALID = "not_yet_valid"
    EXPIRED = "expired"
    MISSING_CLAIM = "missing_claim"
    KEYS_UNAVAILABLE = "keys_unavailable"
    UNKNOWN_POD = "unknown_pod"
    OTHER_NAMESPACE = "other_namespace"
    OTHER_ACCOUNT = "other_account"
    OTHER_RESOURCE = "other_resource"
    TOKEN_ENDED = "token_ended"  # noqa: S105 # a cause's name
    WITHDRAWN = "withdrawn"
    REPLACED = "replaced"
    SILENT = "silent"
    MALFORMED_STATUS = "malformed_status"


# They come with every hour and every deletion; counts tell of them, the log does not.
_EXPECTED = frozenset({Refusal.TOKEN_ENDED, Refusal.WITHDRAWN})


class RefusedError(PipelineServeError):
    """Something of a sidecar's is refused; the message names what is wrong, and no token's text."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        self.refusal = refusal
        super().__init__(message)


class RefusalLedger:
    """Counts refusals and logs few of them: whoever is refused may try as often as it likes.

    Args:
        clock_s: a monotonic clock.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._began_at_s = clock_s()
        self._hosts: set[str] = set()
        self._num_unsaid = 0
        self.counts: Counter[Refusal] = Counter()

    def note(self, peer: str, error: RefusedError) -> None:
        """Count one; it is logged unless this peer's, or too many, were lately.

        Args:
            peer: as gRPC names it, with a port that is another one at each connection.
            error: what is wrong.
        """
        self.counts[error.refusal] += 1
        if error.refusal in _EXPECTED:
            return
        self._begin_window_if_due()
        host = peer.rpartition(":")[0]
        if host in self._hosts or len(self._hosts) >= _MAX_LINES:
            self._num_unsaid += 1
            return
        self._hosts.add(host)
        logger.warning("sidecar refused: %s (%s): %s", error.refusal.value, host, error)

    def _begin_window_if_due(self) -> None:
        now_s = self._clock_s()
        if now_s - self._began_at_s < _WINDOW_S:
            return
        if self._num_unsaid:
            logger.warning("sidecars refused without a line of their own: %d", self._num_unsaid)
        self._began_at_s, self._num_unsaid = now_s, 0
        self._hosts.clear()
