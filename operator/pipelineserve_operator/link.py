"""Between reconciling and the sidecars: what they are to be told, and what they have said."""

from dataclasses import dataclass
from typing import Protocol

from pipelineserve.wire.v1 import operator_pb2 as pb


@dataclass(frozen=True, slots=True)
class Offered:
    """What the sidecars of one resource are to be told, and who may speak for it.

    Attributes:
        uid: of the resource; one that was deleted and made again has another.
        generation: of the resource; an older one never replaces a newer one.
        spec_json: as `Objectives.spec_json` has it.
        service_account: name of the account that its pods run as.
        pod_uids: its pods that exist; a sidecar in any other pod is turned away.
    """

    uid: str
    namespace: str
    name: str
    generation: int
    spec_json: str
    service_account: str
    pod_uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Report:
    """The latest word of one sidecar.

    Attributes:
        uid: of the resource.
        heard_at_s: on the monotonic clock of the operator's process.
        is_connected: whether its stream is open.
        status: what it said; within the bounds of `attend.statuses`, and never changed.
    """

    uid: str
    pod_uid: str
    pod_name: str
    replica_index: int
    heard_at_s: float
    is_connected: bool
    status: pb.ControllerStatus


class Link(Protocol):
    """The sidecars, as reconciling sees them."""

    def offer(self, offered: Offered) -> None:
        """Tell this to the resource's sidecars, now and whenever one comes."""

    def withdraw(self, uid: str) -> None:
        """The resource is gone: nobody speaks for it any more."""

    def reports(self, uid: str) -> tuple[Report, ...]:
        """The latest word of each of its sidecars, by replica; those that left a while ago not."""
