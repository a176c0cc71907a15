"""`pserve local up` as a process, with folders and ports of its own."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from engine_server import PATIENCE_S, all_have_ended, wait_until
from free_ports import a_free_port

MANIFEST = """
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {{name: tiny}}
spec:
  model: {{uri: "file://{folder}"}}
  engine: {{type: Torch}}
  parallelism: {{stages: {stages}}}
  slo: {{ttft: {{milliseconds: 1000}}, tpot: {{milliseconds: 100}}}}
  chunking: {{policy: Static, staticTokens: 64}}
"""


def write_manifest(folder: Path, model_folder: Path, *, stages: int) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(MANIFEST.format(folder=model_folder, stages=stages))
    return path


class Run:
    """One `pserve local up`, with a folder of its own for temporary files."""

    def __init__(
        self, process: "subprocess.Popen[str]", temporary_folder: Path, page_port: int
    ) -> None:
        self.process = process
        self.temporary_folder = temporary_folder
        self.page_url = f"http://127.0.0.1:{page_port}/"
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_serving(self, port: int) -> None:
        """Return when the API answers."""
        wait_until(lambda: self.process.poll() is not None or is_ready(port), bool)
        assert self.process.poll() is None, self.log

    def wait_controlled(self, patience_s: float = PATIENCE_S) -> None:
        """Return when the live page is announced."""
        wait_until(
            lambda: self.process.poll() is not None or "Live page on" in self.log, bool, patience_s
        )
        assert self.process.poll() is None, self.log

    def wait_said(self, words: str) -> None:
        """Return when it has said so."""
        wait_until(lambda: words in self.log, bool)

    def state(self) -> dict[str, Any]:
        """What the controller shows."""
        found: dict[str, Any] = httpx.get(f"{self.page_url}api/state").json()
        return found

    def wait(self) -> int:
        """Exit status, once all output is read."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        return code

    @property
    def log(self) -> str:
        """What it has written to stderr."""
        return "\n".join(self.lines)

    def descendants(self) -> list[int]:
        """Processes below it: the server, its nursery and the stages."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (parent := parent_of(int(entry.name))):
                children.setdefault(parent, []).append(int(entry.name))
        found, todo = [], [self.process.pid]
        while todo:
            todo += (below := children.get(todo.pop(), []))
            found += below
        return found

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self.lines.append(line.rstrip())  # one by one: others read it meanwhile


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        return 0


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready").is_success
    except httpx.TransportError:
        return False


@contextmanager
def local_up(manifest: Path, port: int, *flags: str) -> Iterator[Run]:
    page_port = a_free_port()
    with tempfile.TemporaryDirectory(prefix="up-") as temporary_folder:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pipelineserve_cli.main", "local", "up"),
                *("-f", str(manifest), f"--port={port}", f"--page-port={page_port}", *flags),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": temporary_folder},
            start_new_session=True,
        )
        run = Run(process, Path(temporary_folder), page_port)
        try:
            yield run
        finally:
            pids = run.descendants()
            process.kill()
            process.wait()
            # The keeper among them ends the others, and removes what is outside the folder.
            if not all_have_ended(pids):
                for pid in filter(parent_of, pids):
                    os.kill(pid, signal.SIGKILL)
            process.stdout.close()  # type: ignore[union-attr] # it is a pipe
