"""A server and every process below it: started, awaited, its CPU time, ended."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from bench.environments import ToolError

from pipelineserve_engine.nursery.tending import STAGE_NAME

_START_TIMEOUT_S = 900.0  # a peer may compile its model first
_STOP_TIMEOUT_S = 60.0
_POLL_PERIOD_S = 0.2


@contextmanager
def serving(
    command: Sequence[str], environ: Mapping[str, str], ready_url: str, log: Path
) -> Iterator[int]:
    """Run a server for the length of the block; yields its pid once `ready_url` answers 200.

    Args:
        command: program and arguments.
        environ: its whole environment.
        ready_url: asked until it answers.
        log: for its output.

    Raises:
        ToolError: it ended or was not ready in time; the message has the end of its log.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a process group that can be ended as a whole
        )
    try:
        _await_ready(process, ready_url, log)
        yield process.pid
    finally:
        _end(process)


def cpu_s_of_tree(root_pid: int) -> float:
    """CPU time so far of a process and all below it, those that have ended included.

    From Linux's /proc. What has ended counts once its parent has waited for it, as usual there.
    """
    fields = _stat_fields()
    ticks = 0
    pending = [root_pid]
    while pending:
        pid = pending.pop()
        # utime, stime, and both of its ended children.
        ticks += sum(map(int, fields[pid][11:15]))
        pending += [child for child, values in fields.items() if int(values[1]) == pid]
    return ticks / os.sysconf("SC_CLK_TCK")


def cpu_s_of_process(pid: int) -> float:
    """CPU time so far of one process, all of its threads and nobody below it; from /proc."""
    return sum(map(int, _stat_fields()[pid][11:13])) / os.sysconf("SC_CLK_TCK")


def cpu_s_of_other_threads(pid: int) -> float:
    """CPU time so far of a process's living threads but its main one; from /proc."""
    ticks = 0
    for path in Path(f"/proc/{pid}/task").glob("[0-9]*/stat"):
        if path.parent.name != str(pid):
            with suppress(OSError):  # it has ended since the folder was listed
                ticks += sum(map(int, path.read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def titles_below(root_pid: int) -> dict[int, str]:
    """The command lines, which programs may set, of all processes below one."""
    fields = _stat_fields()
    found: dict[int, str] = {}
    pending = [root_pid]
    while pending:
        parent = pending.pop()
        children = [pid for pid, values in fields.items() if int(values[1]) == parent]
        pending += children
        for pid in children:
            with suppress(OSError):  # it has ended since
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
                found[pid] = title.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def stage_pids(server_pid: int) -> list[int]:
    """Of an engine's server: what its nursery, its only child, has forked, by stage index."""
    fields = _stat_fields()
    children = [pid for pid, values in fields.items() if int(values[1]) == server_pid]
    names = [(_name_of(pid), pid) for pid, values in fields.items() if int(values[1]) in children]
    stages = [(len(name), name, pid) for name, pid in names if name.startswith(STAGE_NAME)]
    return [pid for _, _, pid in sorted(stages)]


def cpu_s_of_machine() -> float:
    """CPU time so far of all cores that was not idle; what other machines took of it included.

    From Linux's /proc/stat: user, nice, system, irq, softirq, steal; not idle and iowait.
    """
    ticks = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _stat_fields() -> dict[int, list[str]]:
    """Of every process, the fields of its stat after the name: state, parent, ..."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended since the folder was listed
            found[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    return found


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it has ended since
        return ""


def _await_ready(process: "subprocess.Popen[bytes]", ready_url: str, log: Path) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while not _answers(ready_url):
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_PERIOD_S)
            raise ToolError(f"the server ended with {process.returncode}:\n{_tail(log)}")
        if time.monotonic() > deadline_s:
            raise ToolError(f"not ready after {_START_TIMEOUT_S:g} s:\n{_tail(log)}")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:])


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to end, then kill what is left of its group."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_TIMEOUT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
