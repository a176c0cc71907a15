"""Puts controllers' policies in force, and the scheduler's own defaults when a lease ends."""

from dataclasses import dataclass, replace
from typing import Protocol

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.scheduler.session import ControlSession, Granted, Refused, Repeated


class Schedulable(Protocol):
    """What schedules by the policy that it is given."""

    def adopt(self, policy: SchedulingPolicy) -> int:
        """Schedule by it from the next micro-batch on, and return that one's sequence."""
        ...


@dataclass(frozen=True, slots=True)
class Adopted:
    """A policy is in force from this micro-batch on."""

    first_micro_batch: int


class LeaseKeeper:
    """Between a session's rules and the scheduler; to be called between two micro-batches.

    Args:
        scheduler: obeys.
        session: decides which policies count.
        default: what holds without a lease; a policy may bring another static chunk for it.
    """

    def __init__(
        self, scheduler: Schedulable, session: ControlSession, default: SchedulingPolicy
    ) -> None:
        self._scheduler = scheduler
        self._session = session
        self._fallback = replace(default, holding=HoldNothing(Reason.LEASE_ENDED))

    def apply(
        self, epoch: int, sequence: int, leased: LeasedPolicy, now_s: float
    ) -> Adopted | Repeated | Refused:
        """Put a policy in force before the next micro-batch is composed, or say why not."""
        match self._session.check(epoch, sequence):
            case Granted():
                first_micro_batch = self._scheduler.adopt(leased.policy)
                if leased.static_chunk_tokens is not None:
                    static = Static(leased.static_chunk_tokens)
                    self._fallback = replace(self._fallback, chunking=static)
                self._session.grant(sequence, first_micro_batch, leased.lease_s, now_s)
                return Adopted(first_micro_batch)
            case other:
                return other

    def lapse(self, now_s: float) -> bool:
        """Whether the lease has ended since the last call; the defaults are then in force."""
        has_ended = self._session.lapse(now_s)
        if has_ended:
            self._scheduler.adopt(self._fallback)
        return has_ended
