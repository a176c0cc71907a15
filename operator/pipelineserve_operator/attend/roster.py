"""Who may speak for which resource, what each is to be told, and what each has said."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_operator.attend.attendance import Attendance
from pipelineserve_operator.attend.refusals import Refusal, RefusedError
from pipelineserve_operator.attend.tokens import PodIdentity
from pipelineserve_operator.link import Offered, Report

logger = logging.getLogger(__name__)

# A replica that left still counts in the window's figures for this long.
KEPT_S = 300.0
# Figures change with every request; whoever is told of changes is told of these this often.
FIGURES_S = 10.0


@dataclass(frozen=True, slots=True)
class _Word:
    """A report, and what was last told on of it."""

    report: Report
    noticed: pb.ControllerStatus
    noticed_at_s: float


class Roster:
    """The link, as reconciling and streams see it; used in one event loop's thread.

    Args:
        changed: is called with the uid of a resource whose reports tell something new.
        clock_s: a monotonic clock.
    """

    def __init__(self, changed: Callable[[str], None], clock_s: Callable[[], float]) -> None:
        self._changed = changed
        self._clock_s = clock_s
        self._offers: dict[str, Offered] = {}
        self._uids: dict[str, str] = {}
        self._streams: dict[str, Attendance] = {}
        self._words: dict[str, dict[str, _Word]] = {}

    @property
    def num_streams(self) -> int:
        """Streams that are open."""
        return len(self._streams)

    def offer(self, offered: Offered) -> None:
        """Tell this to the resource's sidecars, now and whenever one comes."""
        old = self._offers.get(offered.uid)
        if old is not None and offered.generation < old.generation:
            logger.info(
                "offer left out: %s/%s has generation %d already, got %d",
                *(offered.namespace, offered.name, old.generation, offered.generation),
            )
            return
        self._offers[offered.uid] = offered
        if old is not None:
            gone = old.pod_uids - offered.pod_uids
            refusal = RefusedError(Refusal.WITHDRAWN, "this pod is no longer of its resource")
            self._dismiss(offered.uid, gone, refusal)
        for pod_uid in offered.pod_uids:
            self._uids.setdefault(pod_uid, offered.uid)
            stream = self._streams.get(pod_uid)
            if stream is not None and stream.uid == offered.uid:
                stream.offer(offered)
        self._forget_old(offered.uid)

    def withdraw(self, uid: str) -> None:
        """The resource is gone: nobody speaks for it any more."""
        old = self._offers.pop(uid, None)
        self._words.pop(uid, None)
        if old is not None:
            refusal = RefusedError(Refusal.WITHDRAWN, "this pod's resource is gone")
            self._dismiss(uid, old.pod_uids, refusal)

    def reports(self, uid: str) -> tuple[Report, ...]:
        """The latest word of each of its sidecars, by replica; those that left a while ago not."""
        self._forget_old(uid)
        reports = (word.report for word in self._words.get(uid, {}).values())
        return tuple(sorted(reports, key=lambda report: (report.replica_index, report.heard_at_s)))

    def join(self, identity: PodIdentity) -> Attendance:
        """Open the stream of a pod; one that it had before ends.

        Raises:
            RefusedError: the pod speaks for no resource that is known here.
        """
        offered = self._offers.get(self._uids.get(identity.pod_uid, ""))
        if offered is None:
            raise RefusedError(
                Refusal.UNKNOWN_POD,
                f"pod {identity.namespace}/{identity.pod_name}: of no resource known here (yet)",
            )
        if identity.namespace != offered.namespace:
            raise RefusedError(
                Refusal.OTHER_NAMESPACE,
                f"token: expected one of the namespace {offered.namespace}, "
                f"got {identity.namespace}",
            )
        if identity.service_account != offered.service_account:
            raise RefusedError(
                Refusal.OTHER_ACCOUNT,
                f"token: expected one of the service account {offered.service_account}, "
                f"got {identity.service_account}",
            )
        if (old := self._streams.get(identity.pod_uid)) is not None:
            old.end(RefusedError(Refusal.REPLACED, "this pod has opened another stream"))
        attendance = Attendance(identity, offered)
        self._streams[identity.pod_uid] = attendance
        return attendance

    def hear(self, attendance: Attendance, status: pb.ControllerStatus) -> None:
        """Keep the status that came by this stream.

        Raises:
            RefusedError: it is about another resource.
        """
        uid, identity = attendance.uid, attendance.identity
        if status.resource_uid != uid:
            raise RefusedError(
                Refusal.OTHER_RESOURCE, f"status: expected one of the resource {uid}"
            )
        if self._streams.get(identity.pod_uid) is not attendance:
            return  # its stream has been told to end; the newer one's words hold
        now_s = self._clock_s()
        report = Report(
            uid=uid,
            pod_uid=identity.pod_uid,
            pod_name=identity.pod_name,
            replica_index=status.replica_index,
            heard_at_s=now_s,
            is_connected=True,
            status=status,
        )
        words = self._words.setdefault(uid, {})
        old = words.get(identity.pod_uid)
        if old is not None and not _is_due(old, report):
            words[identity.pod_uid] = replace(old, report=report)
            return
        words[identity.pod_uid] = _Word(report, status, now_s)
        self._changed(uid)

    def leave(self, attendance: Attendance) -> None:
        """Its stream has ended, one way or another."""
        uid, pod_uid = attendance.uid, attendance.identity.pod_uid
        if self._streams.get(pod_uid) is not attendance:
            return  # a newer stream of this pod goes on, or the pod was dismissed
        del self._streams[pod_uid]
        self._disconnect(uid, pod_uid)

    def _dismiss(self, uid: str, pod_uids: frozenset[str], refusal: RefusedError) -> None:
        for pod_uid in pod_uids:
            if self._uids.get(pod_uid) != uid:
                continue  # another resource has it, and had it first
            del self._uids[pod_uid]
            if (stream := self._streams.pop(pod_uid, None)) is not None:
                stream.end(refusal)
                self._disconnect(uid, pod_uid)

    def _disconnect(self, uid: str, pod_uid: str) -> None:
        words = self._words.get(uid, {})
        if (word := words.get(pod_uid)) is not None:
            words[pod_uid] = replace(word, report=replace(word.report, is_connected=False))
            self._changed(uid)

    def _forget_old(self, uid: str) -> None:
        words = self._words.get(uid, {})
        since_s = self._clock_s() - KEPT_S
        for pod_uid, word in list(words.items()):
            if not word.report.is_connected and word.report.heard_at_s < since_s:
                del words[pod_uid]


def _is_due(old: _Word, report: Report) -> bool:
    """Whether anything but figures is new, or figures that were not told on for a while."""
    if not old.report.is_connected or _facts(old.noticed) != _facts(report.status):
        return True
    return report.heard_at_s - old.noticed_at_s >= FIGURES_S and old.noticed != report.status


def _facts(status: pb.ControllerStatus) -> tuple[int, ...]:
    """All that is no figure and does not change with every request."""
    return (
        status.replica_index,
        status.received_generation,
        status.applied_generation,
        status.is_engine_connected,
        status.is_control_effective,
        status.are_metrics_fresh,
        status.slo_met,
        status.slo_feasible,
    )
