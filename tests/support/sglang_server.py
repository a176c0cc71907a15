"""A real SGLang as a process, two stages on a CPU unless flags say more, with the add-on."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from bench.sglang_packages import CPU_ENVIRON, CPU_FLAGS
from tools.sglang_environment import DEFAULT_VENV

from engine_server import NAME
from foreign_server import ForeignServer
from free_ports import a_free_port

REQUIRED = "PIPELINESERVE_REQUIRES_SGLANG"


def sglang_python() -> Path:
    """Python of the environment; without one the test is skipped, or fails where it is required."""
    python = DEFAULT_VENV / "bin" / "python"
    if not python.exists():
        assert not os.environ.get(REQUIRED), f"{python} is missing; run make sglang-env"
        pytest.skip("needs a real SGLang: make sglang-env")
    return python


class SglangServer(ForeignServer):
    """One `sglang.launch_server`.

    Args:
        folder: of the model.
        flags: of SGLang's, after those that a CPU needs; the last of a kind counts.
        environ: for all of its processes.
    """

    def __init__(self, folder: Path, *flags: str, environ: Mapping[str, str] | None = None) -> None:
        port = a_free_port()
        command = [
            *(str(sglang_python()), "-m", "sglang.launch_server", f"--model-path={folder}"),
            *(f"--served-model-name={NAME}", "--host=127.0.0.1", f"--port={port}"),
            *(*CPU_FLAGS, "--dtype=float32", "--pp-size=2"),
            *("--enable-metrics", "--enable-cache-report", *flags),
        ]
        environ = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            **CPU_ENVIRON,
            **(environ or {}),
        }
        super().__init__(command, environ, port, "/health_generate")
