"""A real vLLM as a process, two stages on a CPU, with the add-on (tools/vllm_environment)."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pytest
from bench.vllm_packages import vllm_environ, vllm_programs
from tools.vllm_environment import DEFAULT_VENV

from engine_server import NAME
from foreign_server import ForeignServer
from free_ports import a_free_port
from pipelineserve_engine.models import default_cache_dir

REQUIRED = "PIPELINESERVE_REQUIRES_VLLM"
SCHEDULER = "pipelineserve_engine.vllm.scheduler.make_scheduler"


def vllm_python() -> Path:
    """Python of the environment; without one the test is skipped, or fails where it is required."""
    python = DEFAULT_VENV / "bin" / "python"
    if not python.exists():
        assert not os.environ.get(REQUIRED), f"{python} is missing; run make vllm-env"
        pytest.skip("needs a real vLLM: make vllm-env")
    return python


class VllmServer(ForeignServer):
    """One OpenAI server of vLLM's.

    Args:
        folder: of the model.
        flags: of vLLM's, after those that a CPU needs.
        environ: for all of its processes.
    """

    def __init__(self, folder: Path, *flags: str, environ: Mapping[str, str] | None = None) -> None:
        port = a_free_port()
        command = [
            *(str(vllm_python()), "-m", "vllm.entrypoints.openai.api_server", f"--model={folder}"),
            *(f"--served-model-name={NAME}", "--host=127.0.0.1", f"--port={port}"),
            *("--dtype=float32", "--pipeline-parallel-size=2", f"--scheduler-cls={SCHEDULER}"),
            # Traced but not compiled: gcc would take minutes for each model's folder. Without
            # tracing its second stage would lack what vLLM's warm-up makes.
            '--compilation-config={"mode": 2, "backend": "eager"}',
            *("--enable-prompt-tokens-details", "--disable-uvicorn-access-log", *flags),
        ]
        # Of its own, so that what stays behind is this server's; short, since sockets live in it.
        self._folder = tempfile.mkdtemp(prefix="vllm-")
        cache = default_cache_dir(os.environ)
        super().__init__(
            command,
            {
                **vllm_environ(vllm_programs(cache), cache),
                "TOKENIZERS_PARALLELISM": "false",
                "TMPDIR": self._folder,
                # The scheduler's process shares its metrics with the one that serves them.
                "PROMETHEUS_MULTIPROC_DIR": self._folder,
                **(environ or {}),
            },
            port,
            "/health",
        )

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill all of its processes, and remove what they have left."""
        super().__exit__(error_type, error, trace)
        shutil.rmtree(self._folder, ignore_errors=True)
