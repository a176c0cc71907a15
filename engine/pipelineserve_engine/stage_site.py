"""What one start of a group shares: its sockets, and how its stages find each other."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import zmq

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine.local_process import LocalProcess
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.plan import LinkPlan, PipelinePlan
from pipelineserve_engine.stage_process import StageProcess
from pipelineserve_engine.transport.link_settings import LinkEnd, LinkSettings, TransportKind
from pipelineserve_engine.transport.shared_memory import RingShape, make_link
from pipelineserve_engine.worker_settings import StageEndpoints

_RENDEZVOUS_FILE = "rendezvous"


class StageSite(Protocol):
    """Made anew for every start, so that nothing of an earlier one can reach it.

    Attributes:
        commands: one socket per stage.
        reports: of all stages.
    """

    commands: Sequence[zmq.Socket[bytes]]
    reports: zmq.Socket[bytes]

    def endpoints(self) -> Sequence[StageEndpoints]:
        """What each stage is told; called once, right before the stages start."""
        ...

    def close(self) -> None:
        """Remove what was left of it."""
        ...


class StageHosts(Protocol):
    """Where the stages run; for the life of the server.

    Attributes:
        processes: one per stage.
    """

    processes: Sequence[StageProcess]

    def open_site(self) -> StageSite:
        """What the next start shares.

        Raises:
            EngineUnavailableError: the sockets cannot be made.
        """
        ...

    def note_absent(self, stage_indexes: Sequence[int], now_s: float) -> None:
        """No process of these stages is known yet; told again and again while they start."""
        ...

    def close(self) -> None:
        """The stages have ended."""
        ...


class LocalHosts:
    """All stages come from this process's nursery."""

    def __init__(self, plan: PipelinePlan, nursery: Nursery, worker_module: str) -> None:
        self._plan = plan
        self.processes: Sequence[StageProcess] = [
            LocalProcess(nursery, worker_module) for _ in range(plan.num_stages)
        ]

    def open_site(self) -> StageSite:
        """See `StageHosts.open_site`."""
        return LocalSite(self._plan.links, self._plan.num_stages)

    def note_absent(self, stage_indexes: Sequence[int], now_s: float) -> None:
        """Says nothing: they start as soon as the nursery has imported everything."""

    def close(self) -> None:
        """Nothing outlives the sites; the nursery is its owner's."""


class LocalSite:
    """Sockets and files in a folder that only this user may enter."""

    def __init__(self, links: LinkPlan, num_stages: int) -> None:
        self._plan = links
        self._folder = Path(tempfile.mkdtemp(prefix="pserve-"))
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self.commands: Sequence[zmq.Socket[bytes]] = [
                self._bind(zmq.PUSH, _commands(index)) for index in range(num_stages)
            ]
            self.reports = self._bind(zmq.PULL, "reports")
        except zmq.ZMQError as error:
            self.close()
            raise EngineUnavailableError(
                f"cannot make sockets in {self._folder}: {error}; "
                "set TMPDIR to a short path on a local disk"
            ) from error

    def endpoints(self) -> Sequence[StageEndpoints]:
        """See `StageSite.endpoints`; who starts the stages takes over the ends of their links.

        Raises:
            EngineUnavailableError: the system gives no memory for the links.
        """
        try:
            links = self._links()
        except OSError as error:
            raise EngineUnavailableError(
                f"cannot share memory between the stages: {error}; take the gloo transport"
            ) from error
        return [
            StageEndpoints(
                command_address=self._address(_commands(index)),
                report_address=self._address("reports"),
                links=stage_links,
                shared_folder=str(self._folder),
            )
            for index, stage_links in enumerate(links)
        ]

    def close(self) -> None:
        """Close the sockets, remove the folder."""
        self._context.destroy(linger=0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _bind(self, kind: int, name: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.bind(self._address(name))
        return socket

    def _address(self, name: str) -> str:
        return f"ipc://{self._folder / name}"

    def _links(self) -> list[LinkSettings]:
        num_stages = len(self.commands)
        if self._plan.kind is TransportKind.SHARED_MEMORY:
            return _shared_memory_links(self._plan.ring, num_stages)
        rendezvous = (self._folder / _RENDEZVOUS_FILE).as_uri()
        return [LinkSettings(self._plan.kind, rendezvous=rendezvous) for _ in range(num_stages)]


def _shared_memory_links(ring: RingShape, num_stages: int) -> list[LinkSettings]:
    links = _make_links(ring, num_stages - 1)
    befores: list[LinkEnd | None] = [None, *(receiver for _, receiver in links)]
    behinds: list[LinkEnd | None] = [*(sender for sender, _ in links), None]
    return [
        LinkSettings(TransportKind.SHARED_MEMORY, ring.place_tokens, before=before, behind=behind)
        for before, behind in zip(befores, behinds, strict=True)
    ]


def _make_links(ring: RingShape, num_links: int) -> list[tuple[LinkEnd, LinkEnd]]:
    """All of them, or an OSError and none."""
    links: list[tuple[LinkEnd, LinkEnd]] = []
    try:
        while len(links) < num_links:
            links.append(make_link(ring))
    except OSError:
        for sender, receiver in links:
            sender.close()
            receiver.close()
        raise
    return links


def _commands(stage_index: int) -> str:
    return f"commands-{stage_index}"
