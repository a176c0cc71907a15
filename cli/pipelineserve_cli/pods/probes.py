"""Probes as the kubelet asks them: startup first, then liveness and readiness side by side."""

import http.client
import subprocess
import threading
import time
from collections.abc import Callable
from enum import Enum

from pipelineserve_cli.pods.containers import Container
from pipelineserve_cli.pods.launches import Launch, probe_launch
from pipelineserve_cli.pods.processes import ContainerProcess
from pipelineserve_cli.pods.specs import ContainerSpec, HttpGet, ProbeSpec, RunCommand

# Until a probe has passed once, a person waits for it; where asking costs no process, it is asked
# more often than a node with many pods could afford.
_EAGER_PERIOD_S = 0.25
_LOOK_PERIOD_S = 0.1


class Verdict(Enum):
    """What the answers so far come to."""

    UNDECIDED = "undecided"
    PASSED = "passed"
    FAILED = "failed"


class ProbeTrack:
    """One probe of one process.

    Args:
        spec: of the probe.
        started_at_s: when the process started, or the startup probe passed.
    """

    def __init__(self, spec: ProbeSpec, started_at_s: float) -> None:
        self.spec = spec
        self.verdict = Verdict.UNDECIDED
        self._due_s = started_at_s + spec.initial_delay_s
        self._num_passed = 0
        self._failing_since_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether it is to be asked now."""
        return now_s >= self._due_s

    def note(self, *, has_passed: bool, now_s: float) -> Verdict:
        """Take an answer.

        Failures count by the time that so many would take at the probe's own period, so that
        asking more often gives nobody less time.
        """
        spec = self.spec
        if has_passed:
            self._num_passed += 1
            self._failing_since_s = None
            if self._num_passed >= spec.num_successes:
                self.verdict = Verdict.PASSED
        else:
            self._num_passed = 0
            if self._failing_since_s is None:
                self._failing_since_s = now_s
            failing_s = now_s - self._failing_since_s
            if failing_s >= (spec.num_failures - 1) * spec.period_s:
                self.verdict = Verdict.FAILED
        self._due_s = now_s + self._period_s()
        return self.verdict

    def _period_s(self) -> float:
        is_eager = self.verdict is not Verdict.PASSED and isinstance(self.spec.check, HttpGet)
        return min(self.spec.period_s, _EAGER_PERIOD_S) if is_eager else self.spec.period_s


class ProcessProbes:
    """All probes of one process.

    Args:
        spec: of the container.
        started_at_s: of the process.
        check: whether a probe passes now.
    """

    def __init__(
        self, spec: ContainerSpec, started_at_s: float, check: Callable[[ProbeSpec], bool]
    ) -> None:
        self._spec = spec
        self._check = check
        self._startup = _track(spec.startup, started_at_s)
        self._liveness = _track(spec.liveness, started_at_s)
        self._readiness = _track(spec.readiness, started_at_s)

    @property
    def is_ready(self) -> bool:
        """Whether it has started and passes; one without probes does from the beginning."""
        return all(
            track is None or track.verdict is Verdict.PASSED
            for track in (self._startup, self._readiness)
        )

    def look(self, now_s: float) -> str:
        """Ask what is due; why the process must be ended, empty if it need not."""
        if self._startup is not None and self._startup.verdict is not Verdict.PASSED:
            if self._ask(self._startup, now_s) is Verdict.FAILED:
                return "its startup probe failed"
            return ""
        if self._readiness is not None:
            self._ask(self._readiness, now_s)
        if self._liveness is not None and self._ask(self._liveness, now_s) is Verdict.FAILED:
            return "its liveness probe failed"
        return ""

    def _ask(self, track: ProbeTrack, now_s: float) -> Verdict:
        if not track.is_due(now_s):
            return track.verdict
        return track.note(has_passed=self._check(track.spec), now_s=now_s)


class Prober:
    """Asks a container's probes, whichever process of it runs.

    Args:
        spec: of the container.
        container: that is asked, and started again where its probes say so.
        address: of its pod.
        launch: its command and environment.
    """

    def __init__(
        self,
        spec: ContainerSpec,
        container: Container,
        address: str,
        launch: Callable[[], Launch],
    ) -> None:
        self._spec = spec
        self._container = container
        self._address = address
        self._launch = launch
        self._process: ContainerProcess | None = None
        self._probes: ProcessProbes | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the process that runs now is ready."""
        process, probes = self._container.process, self._probes
        return process is self._process and probes is not None and probes.is_ready

    def run(self, ending: threading.Event) -> None:
        """Until the end is asked for."""
        while not ending.wait(_LOOK_PERIOD_S):
            self.look()

    def look(self) -> None:
        """Ask what is due of the process that runs."""
        process = self._container.process
        if process is None:
            return
        if process is not self._process:
            self._probes = ProcessProbes(self._spec, process.started_at_s, self._passes)
            self._process = process
        if self._probes is not None and (reason := self._probes.look(time.monotonic())):
            self._container.restart(reason)

    def _passes(self, probe: ProbeSpec) -> bool:
        match probe.check:
            case HttpGet() as get:
                return http_passes(self._address, get, probe.timeout_s)
            case RunCommand() as run:
                return command_passes(probe_launch(run, self._launch()), probe.timeout_s)


def http_passes(address: str, get: HttpGet, timeout_s: float) -> bool:
    """Whether the answer has a status from 200 to 399."""
    connection = http.client.HTTPConnection(address, get.port, timeout=timeout_s)
    try:
        connection.request("GET", get.path)
        return 200 <= connection.getresponse().status < 400
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def command_passes(launch: Launch, timeout_s: float) -> bool:
    """Whether the command ends with 0 in time."""
    try:
        return (
            subprocess.run(
                launch.command,
                env=launch.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def _track(spec: ProbeSpec | None, started_at_s: float) -> ProbeTrack | None:
    return None if spec is None else ProbeTrack(spec, started_at_s)
