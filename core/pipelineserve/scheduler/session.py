"""Whose policy is in force: sessions of controllers, their sequences, and the lease.

A controller opens a session and gets an epoch above all before it; from then on only its policies
count, in rising sequence. So a restarted controller is never locked out, and a dying one cannot
overwrite it. A policy holds until its lease ends; the scheduler then runs on its own defaults, so a
controller that is gone costs latency, never a request.
"""

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import NamedTuple


class Refusal(Enum):
    """Why a policy was not put in force."""

    NO_SESSION = "no_session"
    OLD_SESSION = "old_session"
    OLD_SEQUENCE = "old_sequence"


@dataclass(frozen=True, slots=True)
class Granted:
    """The policy may be put in force."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """This very sequence was granted before: nothing changes, and the lease is not renewed.

    Attributes:
        first_micro_batch: what was answered then.
    """

    first_micro_batch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The policy is not put in force; `latest` is the epoch or sequence that stands against it."""

    refusal: Refusal
    latest: int


class PolicyId(NamedTuple):
    """The session and sequence that a policy was granted under."""

    epoch: int
    sequence: int


NO_POLICY = PolicyId(0, 0)
"""The scheduler's own defaults."""


class ControlSession:
    """Decides which Apply counts; time is an argument, and whoever uses it holds one lock around.

    Args:
        first_epoch: of the first session; above those of an earlier process on the same socket.
    """

    def __init__(self, first_epoch: int) -> None:
        self._next_epoch = first_epoch
        self._epoch: int | None = None
        self._latest_sequence = 0
        self._first_micro_batch = 0
        self._in_force = NO_POLICY
        self._lease_end_s = inf

    @property
    def in_force(self) -> PolicyId:
        """The policy that holds now, perhaps of an earlier session."""
        return self._in_force

    def lease_left_s(self, now_s: float) -> float:
        """Seconds until the policy in force lapses; 0 without one."""
        return 0.0 if self._in_force == NO_POLICY else max(0.0, self._lease_end_s - now_s)

    def open(self) -> int:
        """Begin a session and return its epoch; the policy in force stays for its lease."""
        self._epoch = self._next_epoch
        self._next_epoch += 1
        self._latest_sequence = 0
        return self._epoch

    def check(self, epoch: int, sequence: int) -> Granted | Repeated | Refused:
        """Whether this policy may be put in force; changes nothing."""
        if self._epoch is None:
            return Refused(Refusal.NO_SESSION, 0)
        if epoch != self._epoch:
            return Refused(Refusal.OLD_SESSION, self._epoch)
        if sequence == self._latest_sequence and sequence:
            return Repeated(self._first_micro_batch)
        if sequence <= self._latest_sequence:
            return Refused(Refusal.OLD_SEQUENCE, self._latest_sequence)
        return Granted()

    def grant(self, sequence: int, first_micro_batch: int, lease_s: float, now_s: float) -> None:
        """Note that the policy was put in force from `first_micro_batch` on."""
        self._latest_sequence = sequence
        self._in_force = PolicyId(self._epoch or 0, sequence)
        self._first_micro_batch = first_micro_batch
        self._lease_end_s = now_s + lease_s

    def lapse(self, now_s: float) -> bool:
        """Whether the lease has ended since the last call; the defaults must come back then."""
        if self._in_force == NO_POLICY or now_s < self._lease_end_s:
            return False
        self._in_force = NO_POLICY
        self._lease_end_s = inf
        return True
