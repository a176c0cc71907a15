"""SGLang's image is built for real, on a base that stands for SGLang's own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tools.images import WORK_FOLDER, Component, add_dependencies
from tools.sources import ROOT

import node_cluster
from kube_cluster import starter

pytestmark = pytest.mark.timeout(900)

PREFIX, TAG = "localhost/pipelineserve-test", "sglang-image"
IMAGE = f"{PREFIX}/sglang:{TAG}"
STAND_IN = f"localhost/sglang-stand-in:{TAG}"
# What SGLang's image brings itself, and as much of SGLang as the add-on's entry point asks for: a
# version that nobody has tried, and the place where hooks are registered.
STAND_IN_DOCKERFILE = """
FROM localhost/python:3.11
RUN --mount=type=bind,source=dependencies,target=/wheels \\
    python3 -m pip install --no-cache-dir --no-index --no-deps /wheels/*.whl
COPY sglang /usr/lib/python3/dist-packages/sglang
COPY sglang-0.4.0.dist-info /usr/lib/python3/dist-packages/sglang-0.4.0.dist-info
"""
HOOK_REGISTRY = """
import enum
HookType = enum.Enum("HookType", "AROUND AFTER")
class HookRegistry:
    @staticmethod
    def register(target, hook, kind):
        print("hooked", target)
"""
ASK_ENTRY_POINT = """
import os
from importlib.metadata import entry_points
(point,) = entry_points(group="sglang.srt.plugins")
print(point.name, os.getuid())
point.load()()
"""


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image, by the command that users have; gone afterwards, with its base."""
    if (reason := node_cluster.why_not()) is not None or (program := starter()) is None:
        if os.environ.get("PIPELINESERVE_TEST_REQUIRE_NODES"):
            pytest.fail(reason or "needs the program that starts clusters")
        pytest.skip(reason or "needs the program that starts clusters")
    buildah_environ = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    checked([str(program.parent / "base-image")], buildah_environ)
    checked(
        [
            *("buildah", "bud", "--format=docker", f"--tag={STAND_IN}"),
            str(a_stand_in(WORK_FOLDER / "sglang-stand-in")),
        ],
        buildah_environ,
    )
    settings = {
        "IMAGE_TOOL": "buildah",
        "IMAGE_PREFIX": PREFIX,
        "IMAGE_TAG": TAG,
        "BASE_IMAGE": STAND_IN,
    }
    checked([sys.executable, "-m", "tools.images", "sglang"], {**buildah_environ, **settings})
    yield IMAGE
    checked(["buildah", "rmi", IMAGE, STAND_IN], buildah_environ)


def a_stand_in(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    add_dependencies(folder, Component.SGLANG)
    plugins = folder / "sglang" / "srt" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "hook_registry.py").write_text(HOOK_REGISTRY)
    metadata = folder / "sglang-0.4.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.4.0\n")
    (folder / "Dockerfile").write_text(STAND_IN_DOCKERFILE)
    return folder


def checked(command: list[str], environ: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environ, cwd=ROOT
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def ran(image: str, *settings: str) -> "subprocess.CompletedProcess[str]":
    """The add-on's entry point, called in a container as SGLang calls it."""
    environ = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    container = checked(["buildah", "from", image], environ).strip()
    try:
        given = [f"--env={setting}" for setting in settings]
        command = ["buildah", "run", *given, container, "--", "python3", "-c", ASK_ENTRY_POINT]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    finally:
        checked(["buildah", "rm", container], environ)


def test_it_starts_sglang_as_nobody(image: str) -> None:
    described = json.loads(checked(["buildah", "inspect", "--type=image", image], os.environ))
    config = described["OCIv1"]["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["python3", "-m", "sglang.launch_server"]


def test_the_add_on_is_there_and_is_silent_without_settings(image: str) -> None:
    done = ran(image)
    assert (done.returncode, done.stdout.split()) == (0, ["pipelineserve", "65532"]), done.stderr


def test_the_add_on_hooks_nothing_but_the_loop_of_an_sglang_that_it_does_not_know(
    image: str,
) -> None:
    done = ran(image, "PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS=64")
    assert done.returncode == 0, done.stderr
    hooked = [line for line in done.stdout.splitlines() if line.startswith("hooked")]
    assert hooked == ["hooked sglang.srt.managers.scheduler.Scheduler.run_event_loop"]
    assert "SGLang 0.4.0: expected 0.5.22 or 0.5.23" in done.stderr


def test_settings_that_are_wrong_end_it_with_their_name(image: str) -> None:
    done = ran(image, "PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS=many")
    assert done.returncode != 0
    assert "PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS" in done.stderr
