"""Stages that stage hosts run: the other way, beside a nursery, to have processes."""

import logging
import secrets
from collections.abc import Sequence

import zmq

from pipelineserve_engine.plan import OtherHosts, PipelinePlan
from pipelineserve_engine.remote.addresses import bind_tcp
from pipelineserve_engine.remote.control import Control
from pipelineserve_engine.remote.keys import GroupKey, read_group_key, secure_server
from pipelineserve_engine.remote.messages import MAX_REPORT_BYTES
from pipelineserve_engine.stage_process import ProcessEnd, StageProcess
from pipelineserve_engine.stage_site import StageSite
from pipelineserve_engine.transport.link_settings import LinkSettings, TransportKind
from pipelineserve_engine.transport.rendezvous import TcpRendezvous
from pipelineserve_engine.worker_settings import StageEndpoints, WorkerSettings

# A stage host that is there starts its worker sooner.
_FIRST_NOTE_S = 2.0
_NOTE_PERIOD_S = 30.0

logger = logging.getLogger(__name__)


class RemoteProcess:
    """The worker of one stage, under the stage host that has joined for it."""

    def __init__(self, control: Control, stage_index: int) -> None:
        self._control = control
        self._stage_index = stage_index
        self._generation = ""
        self._is_killed = False

    @property
    def pid(self) -> int | None:
        """See `StageProcess.pid`."""
        state = self._control.state(self._stage_index)
        return state.pid if state.generation == self._generation else None

    @property
    def clock_offset_s(self) -> float:
        """See `StageProcess.clock_offset_s`."""
        return self._control.state(self._stage_index).clock_offset_s

    def start(self, settings: WorkerSettings) -> None:
        """Have it started as soon as its stage host is there."""
        self._generation = settings.endpoints.generation
        self._is_killed = False
        self._control.order(self._stage_index, settings)

    def poll(self) -> ProcessEnd | None:
        """See `StageProcess.poll`; what the stage host said last."""
        state = self._control.state(self._stage_index)
        return state.end if state.generation == self._generation else None

    def kill(self) -> None:
        """See `StageProcess.kill`."""
        self._is_killed = True
        self._control.order(self._stage_index, None)

    def reap(self) -> None:
        """Waits for nothing: its stage host ends it before it starts another one."""

    def wait(self, timeout_s: float) -> None:
        """See `StageProcess.wait`; what was killed is not heard of again."""
        self._control.wait(lambda: self._is_killed or self.poll() is not None, timeout_s)

    def dump_stacks(self) -> None:
        """See `StageProcess.dump_stacks`."""
        self._control.dump_stacks(self._stage_index)


class RemoteHosts:
    """All stages are run by stage hosts, each at its own address.

    Raises:
        EngineUnavailableError: the key cannot be used, or the leader cannot listen.
    """

    def __init__(self, hosts: OtherHosts, plan: PipelinePlan) -> None:
        self._hosts = hosts
        self._kind = plan.links.kind
        self._key = read_group_key(hosts.group_key_file)
        self._control = Control(hosts, self._key)
        self.processes: Sequence[StageProcess] = [
            RemoteProcess(self._control, index) for index in range(plan.num_stages)
        ]
        self._next_note_s: float | None = None

    def open_site(self) -> StageSite:
        """See `StageHosts.open_site`."""
        generation = secrets.token_hex(8)
        self._next_note_s = None
        self._control.gate.allow(generation)
        return RemoteSite(self._control, self._hosts, self._kind, self._key, generation)

    def note_absent(self, stage_indexes: Sequence[int], now_s: float) -> None:
        """Say which stage hosts are awaited and what to check; soon, then every 30 s."""
        if self._next_note_s is None:
            self._next_note_s = now_s + _FIRST_NOTE_S
        if now_s < self._next_note_s:
            return
        self._next_note_s = now_s + _NOTE_PERIOD_S
        hosts = self._hosts
        leader = f"{hosts.leader_address}:{hosts.leader_port}"
        for index in stage_indexes:
            logger.warning(
                "stage %d waits for its stage host at %s; check that one runs there with "
                "--stage-index=%d, --leader=%s, --group-epoch=%d and the same group key, and that "
                "it can reach the leader",
                *(index, hosts.stage_addresses[index], index, leader, hosts.group_epoch),
            )

    def close(self) -> None:
        """Let the stage hosts go."""
        self._control.close()


class RemoteSite:
    """Sockets on free ports of the leader's address, with keys of their own at every start."""

    def __init__(
        self,
        control: Control,
        hosts: OtherHosts,
        kind: TransportKind,
        key: GroupKey,
        generation: str,
    ) -> None:
        self._context = control.context
        self._host = control.host
        self._key = key
        self._generation = generation
        self._addresses = hosts.stage_addresses
        self._kind = kind
        bound = [self._bind(zmq.PUSH) for _ in hosts.stage_addresses]
        self.commands: Sequence[zmq.Socket[bytes]] = [socket for socket, _ in bound]
        self._command_addresses = [address for _, address in bound]
        self.reports, self._report_address = self._bind(zmq.PULL)
        self._rendezvous = TcpRendezvous(self._host)

    def endpoints(self) -> Sequence[StageEndpoints]:
        """See `StageSite.endpoints`."""
        return [
            StageEndpoints(
                command_address=command_address,
                report_address=self._report_address,
                links=LinkSettings(self._kind, address=address, rendezvous=self._rendezvous.url),
                generation=self._generation,
            )
            for command_address, address in zip(
                self._command_addresses, self._addresses, strict=True
            )
        ]

    def close(self) -> None:
        """Close the sockets; messages that nobody took are dropped."""
        for socket in (*self.commands, self.reports):
            socket.close(linger=0)
        self._rendezvous.close()

    def _bind(self, kind: int) -> tuple[zmq.Socket[bytes], str]:
        socket = self._context.socket(kind)
        socket.maxmsgsize = MAX_REPORT_BYTES
        secure_server(socket, self._key, self._generation)
        return socket, bind_tcp(socket, self._host)
