"""The keeper of a run as a child process: started first, ended last."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pipelineserve_cli.pods import keeper

# Beyond the grace: to end the rest by force and remove the folders.
_MARGIN_S = 10.0


class RunKeeper:
    """Ends all processes of a run and removes its folders, with the block or with this process.

    Args:
        mark: of the run's processes.
        grace_s: that they have to end, if this process is gone without having ended them.
        folders: to remove.
        held: descriptors that stay open until all have ended.
    """

    def __init__(
        self, mark: str, grace_s: float, folders: Sequence[Path], held: Sequence[int]
    ) -> None:
        self._grace_s = grace_s
        # -I and -S: it is there within milliseconds, whatever this environment holds.
        self._command = [
            *(sys.executable, "-I", "-S", keeper.__file__, mark, str(grace_s)),
            *map(str, folders),
        ]
        self._held = tuple(held)

    def __enter__(self) -> Self:
        # A session of its own: neither Ctrl-C nor the end of the terminal ends it.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=self._held,
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let it clean up, and wait for that."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        self._process.stdin.close()
        self._process.wait(self._grace_s + _MARGIN_S)
