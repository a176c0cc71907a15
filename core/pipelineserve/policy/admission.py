"""Admission with known output lengths: a request starts if KV will suffice until all have ended.

SGLang does so for requests that ignore the end of sequence (`PrefillAdder`), and FastPP's published
runs rest on it. A server does not know its outputs' lengths: for comparisons.
"""

from dataclasses import dataclass
from enum import Enum

from pipelineserve.policy.reasons import Reason


class Counted(Enum):
    """Whose growth is foreseen."""

    ALL = "all"
    """Everybody who runs."""
    SLOT = "slot"
    """As FastPP released it: those of the slot being filled, those whose micro-batch in flight is
    of decodes alone, and prompts that have started. The others are taken to grow no more, and
    those that are held are forgotten, so that too many start."""


@dataclass(frozen=True, slots=True)
class AdmissionView:
    """One request that could start now, and those beside which it would run.

    Attributes:
        free_tokens: KV that is free once the request's whole prompt has been computed.
        remaining_tokens: tokens that it will still get.
        kept_tokens: tokens of its prompt.
        running: for each of the others (tokens that it will still get, tokens with KV, those of a
            started prompt all counted), in any order.
    """

    free_tokens: int
    remaining_tokens: int
    kept_tokens: int
    running: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class AdmissionDecision:
    """Whether the request may start."""

    may_start: bool
    reason: Reason


@dataclass(frozen=True, slots=True)
class KnownLengths:
    """Looks ahead to each moment in which one of them ends.

    All get a token at a time; who has the fewest to come ends first and gives its KV back.

    Attributes:
        counted: whose growth is foreseen.
        reserve_tokens: KV that must be left for each that is still there at such a moment; the
            released code has 3 for 4 stages.
    """

    counted: Counted = Counted.ALL
    reserve_tokens: int = 3

    def decide(self, view: AdmissionView) -> AdmissionDecision:
        """Sort by what is still to come and look at the KV before each end."""
        states = sorted((*view.running, (view.remaining_tokens, view.kept_tokens)))
        free, num_left, reserve = view.free_tokens, len(states), self.reserve_tokens
        for remaining, kept in states:
            if free - remaining * num_left <= reserve * num_left:
                return AdmissionDecision(may_start=False, reason=Reason.KV_WILL_RUN_OUT)
            free += kept
            num_left -= 1
        return AdmissionDecision(may_start=True, reason=Reason.KV_WILL_SUFFICE)
