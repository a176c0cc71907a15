"""How fast prompts are prefilled while some wait, as seen from the micro-batches themselves."""

from math import inf

# The weight that a micro-batch keeps when the next one is counted: some twenty of them count.
_KEPT_RATIO = 0.95


class PrefillPace:
    """Tokens over time between launches, counted only where the queue was not empty in between."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._busy_s = 0.0
        self._passage_s = 0.0
        # The prefill of the latest micro-batch if it left prompts behind, and when it was launched.
        self._open: tuple[int, float] | None = None

    @property
    def tokens_per_s(self) -> float:
        """Prefill tokens per second while prompts wait; infinite before anything was measured."""
        return self._tokens / self._busy_s if self._busy_s > 0.0 and self._tokens > 0.0 else inf

    @property
    def passage_s(self) -> float:
        """From a micro-batch's launch to its return, lately; 0 before the first."""
        return self._passage_s

    def note_launch(self, prefill_tokens: int, now_s: float, *, leaves_prompts: bool) -> None:
        """A micro-batch goes out with so much prefill."""
        if self._open is not None:
            tokens, since_s = self._open
            self._tokens = _KEPT_RATIO * self._tokens + tokens
            self._busy_s = _KEPT_RATIO * self._busy_s + now_s - since_s
        self._open = (prefill_tokens, now_s) if leaves_prompts else None

    def note_return(self, span_s: float) -> None:
        """A micro-batch came back after so long."""
        kept = _KEPT_RATIO if self._passage_s > 0.0 else 0.0
        self._passage_s = kept * self._passage_s + (1.0 - kept) * span_s

    def forget_in_flight(self) -> None:
        """What is in flight never comes back."""
        self._open = None
