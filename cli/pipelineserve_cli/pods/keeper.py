"""Outlives the process that runs pods, and ends what that has left, however it went.

Run as a file, without site packages: `python -I -S keeper.py MARK GRACE_S FOLDER...` waits for the
end of its standard input, ends every process with the mark, and removes the folders.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence

MARK = "PIPELINESERVE_LOCAL_RUN"
"""The variable that every process of a run has: run, pod and container, each with a slash."""

_LOOK_PERIOD_S = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def marked_pids(mark: str) -> dict[int, int]:
    """Processes whose mark begins so, and their parents; what they have started is among them."""
    entry = f"{MARK}={mark}".encode()
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 # pathlib would take longer to import
        if name.isdigit() and (parent := _parent_if_marked(name, entry)) is not None:
            found[int(name)] = parent
    return found


def kill_marked(mark: str) -> None:
    """End them by force; returns when none is left."""
    while pids := marked_pids(mark):
        for pid in pids:
            _send(pid, signal.SIGKILL)
        time.sleep(_LOOK_PERIOD_S)


def end_marked(mark: str, grace_s: float) -> None:
    """Ask the first process of each container to end, and after so long end all by force."""
    pids = marked_pids(mark)
    for pid, parent in pids.items():
        if parent not in pids:
            _send(pid, signal.SIGTERM)
    end_s = time.monotonic() + grace_s
    while marked_pids(mark) and time.monotonic() < end_s:
        time.sleep(_LOOK_PERIOD_S)
    kill_marked(mark)


def _parent_if_marked(name: str, entry: bytes) -> int | None:
    try:
        with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123 # as above
            if not any(one.startswith(entry) for one in file.read().split(b"\0")):
                return None
        with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 # as above
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:  # it has ended meanwhile, or is another user's
        return None


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has ended meanwhile, which is what was wanted


def main(arguments: Sequence[str]) -> int:
    """Wait, then clean up."""
    mark, grace_s, *folders = arguments
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    while os.read(sys.stdin.fileno(), 4096):
        pass  # only the end of it counts
    end_marked(mark, float(grace_s))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
