"""Where controllers' policies are taken in, in the engine's thread, between two micro-batches."""

import logging
from dataclasses import dataclass
from enum import Enum

from pipelineserve import metrics
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.scheduler.leases import Adopted, LeaseKeeper, Schedulable
from pipelineserve.scheduler.session import ControlSession, Refusal, Refused, Repeated
from pipelineserve_engine.control.telling import Teller
from pipelineserve_engine.control.watchers import Watcher
from pipelineserve_engine.telemetry import Telemetry

MAX_WATCHERS = 4
MAX_PENDING_RECORDS = 4096

logger = logging.getLogger(__name__)


class Outcome(Enum):
    """What became of a policy that was not refused for its session or sequence."""

    APPLIED = "applied"
    REPEATED = "repeated"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Applied:
    """A policy is in force from this micro-batch on, or was when it was first sent."""

    first_micro_batch: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A session, 0 for none, and the queue of what whoever asked for it is told."""

    epoch: int
    watcher: Watcher


def first_epoch(unix_time_s: float) -> int:
    """An epoch above all that an earlier process gave out, which counted from its own start.

    Milliseconds: it would take a thousand sessions per second to get ahead of the clock.
    """
    return int(unix_time_s * 1000.0)


class ControlDesk:
    """Puts policies in force, ends their leases, opens and closes sessions.

    Not thread-safe: all but `count` is called in the engine's thread, whatever state the stages are
    in.

    Args:
        scheduler: obeys.
        session: decides which policies count.
        default: what holds without a lease; a policy may bring another static chunk for it.
        teller: tells those who watch.
        telemetry: counts.
    """

    def __init__(
        self,
        scheduler: Schedulable,
        session: ControlSession,
        default: SchedulingPolicy,
        teller: Teller,
        telemetry: Telemetry,
    ) -> None:
        self._session = session
        self._leases = LeaseKeeper(scheduler, session, default)
        self._teller = teller
        self._telemetry = telemetry
        # From the start, or the first of each would not show as a rise.
        for outcome in (*Outcome, *Refusal):
            telemetry.counter(metrics.POLICIES).labels(outcome=outcome.value)

    def open(self, controller_name: str, now_s: float) -> Opened | None:
        """Begin a session; None if there are as many watchers as there may be."""
        watcher = self._admit(controller_name, MAX_WATCHERS, now_s)
        if watcher is None:
            return None
        epoch = self._session.open()
        logger.info("session %d opened for controller %r", epoch, controller_name)
        return Opened(epoch, watcher)

    def observe(self, observer_name: str, now_s: float) -> Opened | None:
        """Tell somebody without a session, epoch 0; None if the last place is a controller's."""
        watcher = self._admit(observer_name, MAX_WATCHERS - 1, now_s)
        return None if watcher is None else Opened(0, watcher)

    def close(self, watcher: Watcher) -> None:
        """Tell this watcher no more; its session's policy holds for the rest of its lease."""
        self._teller.remove(watcher)
        watcher.close()
        self._count_watchers()

    def apply(
        self, epoch: int, sequence: int, leased: LeasedPolicy, now_s: float
    ) -> Applied | Refused:
        """Put a policy in force before the next micro-batch is composed, or say why not."""
        match self._leases.apply(epoch, sequence, leased, now_s):
            case Refused() as refused:
                self.count(refused.refusal)
                return refused
            case Repeated(first_micro_batch):
                self.count(Outcome.REPEATED)
                return Applied(first_micro_batch)
            case Adopted(first_micro_batch):
                self._telemetry.gauge(metrics.POLICY_IN_FORCE).set(1)
                self.count(Outcome.APPLIED)
                return Applied(first_micro_batch)

    def turn(self, now_s: float) -> float:
        """Do what is due before the next micro-batch is composed.

        Returns:
            Seconds until there is something to do again, infinite if nothing is planned. A lease
            need not be waited for: nothing is composed without a turn before it.
        """
        if self._leases.lapse(now_s):
            self._telemetry.gauge(metrics.POLICY_IN_FORCE).set(0)
            self._telemetry.counter(metrics.POLICY_LAPSES).inc()
            logger.warning("the policy's lease has ended; back to the static chunk")
        return self._teller.turn(now_s)

    def count(self, outcome: Outcome | Refusal) -> None:
        """Count one policy; the only method for any thread."""
        self._telemetry.counter(metrics.POLICIES).labels(outcome=outcome.value).inc()

    def _admit(self, name: str, limit: int, now_s: float) -> Watcher | None:
        if self._teller.num_watchers >= limit:
            return None
        watcher = Watcher(name, MAX_PENDING_RECORDS)
        self._teller.add(watcher, now_s)
        self._count_watchers()
        return watcher

    def _count_watchers(self) -> None:
        self._telemetry.gauge(metrics.WATCHERS).set(self._teller.num_watchers)
