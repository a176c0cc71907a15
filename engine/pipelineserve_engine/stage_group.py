"""The worker processes of one pipeline: start, talk, notice their end, stop."""

import contextlib
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec
import zmq

from pipelineserve.errors import EngineUnavailableError, StagesFailedError
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.plan import PipelinePlan
from pipelineserve_engine.remote.hosts import RemoteHosts
from pipelineserve_engine.stage_messages import (
    FailureReport,
    HeartbeatReport,
    ReadyReport,
    StageReport,
    StepCommand,
    StepReport,
    StopCommand,
)
from pipelineserve_engine.stage_process import WORKER_MODULE
from pipelineserve_engine.stage_site import LocalHosts, StageHosts
from pipelineserve_engine.waker import Waker
from pipelineserve_engine.watchdog import Watchdog
from pipelineserve_engine.worker_settings import StageEndpoints, WorkerSettings

_STOP_TIMEOUT_S = 5.0
_CHECK_PERIOD_S = 0.5
# A stage whose neighbour was killed may report its lost link before the kernel reports the death.
_CAUSE_TIMEOUT_S = 1.0
_CAUSE_PERIOD_S = 0.02
_LAST_WORDS_TIMEOUT_MS = 100
_DUMP_S = 0.1

logger = logging.getLogger(__name__)


class StageGroup:
    """One process per stage; an executor for the scheduler's loop.

    Args:
        plan: what each stage runs.
        nursery: forks the stages of this host; not needed where all are on others.
        worker_module: whose `main` each stage of this host runs; tests give one that misbehaves.

    Raises:
        StagesFailedError: from `start`, `send` and `receive`, when a stage has ended or hangs.
        EngineUnavailableError: where the folder for temporary files is no place for sockets.
    """

    def __init__(
        self, plan: PipelinePlan, nursery: Nursery, worker_module: str = WORKER_MODULE
    ) -> None:
        self._plan = plan
        self._waker = Waker()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[StageReport] = msgspec.msgpack.Decoder(StageReport)
        self._hosts: StageHosts = (
            LocalHosts(plan, nursery, worker_module)
            if plan.other_hosts is None
            else RemoteHosts(plan.other_hosts, plan)
        )
        self._processes = self._hosts.processes
        self._is_closed = False
        try:
            self._open()
        except EngineUnavailableError:
            self._hosts.close()
            raise

    def _open(self) -> None:
        """Sockets and state of one set of processes; nothing of an earlier one can reach them."""
        self._ready_stages: set[int] = set()
        self._site = self._hosts.open_site()
        self._poller = zmq.Poller()
        self._poller.register(self._site.reports, zmq.POLLIN)
        self._poller.register(self._waker.descriptor, zmq.POLLIN)
        self._watchdog = Watchdog(self._plan.num_stages, self._plan.patience)
        self._next_check_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process id of each stage that was started, in order."""
        return tuple(process.pid for process in self._processes if process.pid is not None)

    def start(self, on_ready: Callable[[ReadyReport], None]) -> None:
        """Start all stages and wait until each has loaded its weights.

        Args:
            on_ready: called with each stage's report as it comes.
        """
        self._spawn_all()
        while not self._is_complete:
            for report in self.receive(_CHECK_PERIOD_S):
                match report:
                    case ReadyReport():
                        on_ready(report)
                    case FailureReport():
                        raise EngineUnavailableError(report.text)

    def restart(self) -> None:
        """Kill what is left of the stages and start all anew; their ready reports follow."""
        self._end_all()
        try:
            self._open()
            self._spawn_all()
        except StagesFailedError:
            raise
        except (EngineUnavailableError, OSError, zmq.ZMQError) as error:
            # What the system lacks now it may have again when the next restart is due.
            raise StagesFailedError(f"the stages cannot be started: {error}") from error

    def send(self, command: StepCommand) -> None:
        """Hand a micro-batch to every stage; returns at once."""
        message = self._encoder.encode(command)
        for stage_index, socket in enumerate(self._site.commands):
            try:
                socket.send(message, zmq.DONTWAIT)
            except zmq.Again:  # nobody is at the other end; waiting would be for ever
                self._raise_for_ended(_CAUSE_TIMEOUT_S)
                raise StagesFailedError(f"stage {stage_index} takes no commands") from None
        self._watchdog.start_step(time.monotonic())

    def receive(self, timeout_s: float) -> list[StageReport]:
        """Return reports that are there, or wait for one, for `wake`, or for `timeout_s`.

        Raises:
            StagesFailedError: a stage has ended, is silent, or none makes progress.
        """
        ready = dict(self._poller.poll(round(timeout_s * 1000)))
        if self._waker.descriptor in ready:
            self._waker.drain()
        reports = self._take_reports() if self._site.reports in ready else []
        if any(isinstance(report, FailureReport) for report in reports):
            self._raise_for_ended(_CAUSE_TIMEOUT_S, only_killed=True)
        elif not reports:
            self._check()
        return reports

    def wait(self, timeout_s: float) -> None:
        """Wait for `wake` only, up to `timeout_s`; the stages may be gone."""
        self._waker.wait(timeout_s)

    def wake(self) -> None:
        """Make `receive` or `wait` return; may be called from any thread."""
        self._waker.wake()

    def _take_reports(self) -> list[StageReport]:
        """All messages that are there, less the heartbeats, which only the watchdog needs."""
        reports: list[StageReport] = []
        while self._site.reports.poll(0):
            report: StageReport = self._decoder.decode(self._site.reports.recv())
            now_s = time.monotonic()
            self._watchdog.hear(report.stage_index, now_s)
            match report:
                case HeartbeatReport():
                    continue
                case ReadyReport():
                    self._note_ready(report.stage_index)
                case StepReport():
                    self._watchdog.end_step(report.stage_index, report.sequence, now_s)
                    report = self._in_own_time(report, now_s)
                case FailureReport():
                    pass
            reports.append(report)
        return reports

    def _note_ready(self, stage_index: int) -> None:
        if stage_index in self._ready_stages:
            text = "was started a second time; the keys and values of the first are gone"
            raise StagesFailedError(f"stage {stage_index} {text}")
        self._ready_stages.add(stage_index)
        self._watchdog.ready(stage_index)

    @property
    def _is_complete(self) -> bool:
        """Every stage has loaded its weights."""
        return len(self._ready_stages) == self._plan.num_stages

    def _in_own_time(self, report: StepReport, now_s: float) -> StepReport:
        """The step's times by this host's clock; no step ended after its report came."""
        offset_s = self._processes[report.stage_index].clock_offset_s
        if offset_s == 0.0:
            return report
        offset_s = min(offset_s, now_s - report.end_s)
        return msgspec.structs.replace(
            report, start_s=report.start_s + offset_s, end_s=report.end_s + offset_s
        )

    def kill(self) -> None:
        """Make `stop`, if it waits for the stages, wait no longer; fit for a signal handler."""
        for process in self._processes:
            process.kill()

    def stop(self) -> None:
        """End the stages: ask, then kill; remove what was left on disk."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            # Loading stages read no commands, and one that lost a neighbour may hang in its link.
            if self._is_complete and all(process.poll() is None for process in self._processes):
                self._ask_to_stop()
                self._wait_ended(_STOP_TIMEOUT_S)
        finally:
            self._end_all()
            self._hosts.close()

    def _end_all(self) -> None:
        self.kill()
        for process in self._processes:
            process.reap()
        self._site.close()

    def _ask_to_stop(self) -> None:
        message = self._encoder.encode(StopCommand())
        for socket in self._site.commands:
            with contextlib.suppress(zmq.Again):  # this stage is gone already
                socket.send(message, zmq.DONTWAIT)

    def _wait_ended(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        for process in self._processes:
            process.wait(max(0.0, deadline_s - time.monotonic()))

    def _spawn_all(self) -> None:
        endpoints = self._site.endpoints()
        for stage_index, process in enumerate(self._processes):
            try:
                process.start(self._settings_of(stage_index, endpoints[stage_index]))
            except OSError as error:
                for stage in endpoints[stage_index + 1 :]:
                    stage.links.close_ends()
                text = f"stage {stage_index} has no process: {error}; free memory or raise limits"
                raise StagesFailedError(text) from error
        self._note_running(time.monotonic())

    def _note_running(self, now_s: float) -> None:
        """Tell of each stage whether its process runs; one that waits for a host is no fault."""
        absent = [index for index, process in enumerate(self._processes) if process.pid is None]
        for stage_index in range(self._plan.num_stages):
            if stage_index not in absent:
                self._watchdog.start(stage_index, now_s)
        if absent:
            self._hosts.note_absent(absent, now_s)

    def _settings_of(self, stage_index: int, endpoints: StageEndpoints) -> WorkerSettings:
        plan = self._plan
        layers = plan.partition.layers_of(stage_index)
        return WorkerSettings(
            model_folder=str(plan.model_folder),
            stage_index=stage_index,
            num_stages=plan.num_stages,
            num_slots=plan.num_slots,
            first_layer_index=layers.start,
            num_layers=len(layers),
            num_blocks=plan.num_blocks,
            num_host_blocks=plan.num_host_blocks,
            block_tokens=plan.block_tokens,
            dtype=plan.dtype,
            device=plan.device_of(stage_index),
            num_threads=plan.threads_per_stage,
            endpoints=endpoints,
        )

    def _check(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + _CHECK_PERIOD_S
        self._note_running(now_s)
        has_ended = any(process.poll() is not None for process in self._processes)
        # Its last words say more than its exit status, and may have come since they were asked for.
        if has_ended and not self._site.reports.poll(_LAST_WORDS_TIMEOUT_MS):
            self._raise_for_ended()
        if (fault := self._watchdog.fault(now_s)) is not None:
            logger.warning("%s; %s", fault, self._watchdog.state(now_s))
            self._dump_stacks()
            raise StagesFailedError(fault)

    def _dump_stacks(self) -> None:
        """Let every stage write the stacks of its threads to stderr, as far as it still can."""
        for stage_index, process in enumerate(self._processes):
            if process.pid is None:
                continue  # there is no process that could
            # One after the other, since the stacks themselves do not say whose they are.
            logger.warning("stacks of stage %d, pid %s:", stage_index, process.pid)
            process.dump_stacks()
            time.sleep(_DUMP_S)

    def _raise_for_ended(self, timeout_s: float = 0.0, *, only_killed: bool = False) -> None:
        """Name the stage that has ended, or, to find the cause of a failure, was killed."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            for stage_index, process in enumerate(self._processes):
                end = process.poll()
                if end is not None and (end.is_cause or not only_killed):
                    raise StagesFailedError(f"stage {stage_index} {end.text}")
            if time.monotonic() >= deadline_s:
                return
            time.sleep(_CAUSE_PERIOD_S)
