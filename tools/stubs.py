"""Python stubs of the gRPC contracts, made from their .proto files."""

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tools.sources import ROOT

INCLUDE_ROOT = ROOT / "core"
PROTO_FOLDER = INCLUDE_ROOT / "pipelineserve" / "wire" / "v1"
_SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def stub_names() -> list[str]:
    """The stubs' paths from the root of the checkout."""
    return [
        str(proto.with_name(proto.stem + suffix).relative_to(ROOT))
        for proto in sorted(PROTO_FOLDER.glob("*.proto"))
        for suffix in _SUFFIXES
    ]


def stub_text(name: str) -> str:
    """What the stub of this path says now."""
    return _all_stubs()[name]


@cache
def _all_stubs() -> dict[str, str]:
    """Run the compiler once, into a folder of its own.

    The core folder is the include root, so that the stubs import each other by absolute names.
    """
    protos = sorted(PROTO_FOLDER.glob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        outputs = [
            f"--{kind}={folder}"
            for kind in ("python_out", "grpc_python_out", "mypy_out", "mypy_grpc_out")
        ]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{INCLUDE_ROOT}", *outputs]
        # The plugins for types stand beside this Python, in PATH or not.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(
            [*command, *map(str, protos)],
            check=True,
            env={**os.environ, "PATH": path},
            stderr=subprocess.PIPE,
        )
        out = Path(folder) / PROTO_FOLDER.relative_to(INCLUDE_ROOT)
        base = PROTO_FOLDER.relative_to(ROOT)
        return {str(base / file.name): file.read_text() for file in out.iterdir()}
