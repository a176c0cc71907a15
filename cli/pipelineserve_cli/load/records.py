"""What became of each request, as its client saw it."""

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise


class FailureKind(Enum):
    """Why a request has no whole answer."""

    CONNECT = "no connection"
    LOST = "connection lost"
    THROTTLED = "429 too many requests"
    REFUSED = "4xx refused"
    SERVER_ERROR = "5xx server error"
    STREAM_ERROR = "error event in the stream"
    TRUNCATED = "stream ended early"
    MALFORMED = "no OpenAI stream"
    EMPTY = "no token"
    TIMEOUT = "timeout"
    UNDRAINED = "not done when the drain ended"
    INTERRUPTED = "interrupted by the user"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed request."""

    kind: FailureKind
    message: str
    status: int | None = None
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was sent; all times are from the run's start.

    Attributes:
        sent_s: when it was handed to the connection, or to a new one that had yet to be made.
        chunk_times_s: of every chunk with text.
        prompt_tokens: by the server's usage, else as planned, else 0.
        output_tokens: by the server's usage, else as many as chunks with text.
        failure: None if the answer is whole; a failed request may still have tokens.
        text: the answer, where it was asked for.
    """

    index: int
    is_warm_up: bool
    planned_s: float
    sent_s: float
    ended_s: float
    chunk_times_s: tuple[float, ...]
    prompt_tokens: int
    output_tokens: int
    has_usage: bool
    finish_reason: str | None
    failure: Failure | None
    num_retries: int = 0
    text: str = ""

    @property
    def lag_s(self) -> float:
        """How much later than planned the generator sent it."""
        return self.sent_s - self.planned_s

    @property
    def ttft_s(self) -> float | None:
        """Send to first chunk with text."""
        return self.chunk_times_s[0] - self.sent_s if self.chunk_times_s else None

    @property
    def e2e_s(self) -> float | None:
        """Send to last chunk with text."""
        return self.chunk_times_s[-1] - self.sent_s if self.chunk_times_s else None

    @property
    def tpot_s(self) -> float | None:
        """(Last - first) ÷ (output tokens - 1); None below two tokens or two chunks."""
        if self.output_tokens < 2 or len(self.chunk_times_s) < 2:
            return None
        return (self.chunk_times_s[-1] - self.chunk_times_s[0]) / (self.output_tokens - 1)

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Between consecutive chunks with text."""
        return tuple(later - earlier for earlier, later in pairwise(self.chunk_times_s))
