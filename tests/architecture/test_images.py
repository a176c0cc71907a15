"""Images are built from pinned wheels, by a tool that works, and say what is wrong if not."""

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from tools import images, wheels
from tools.images import BUILDAH, DOCKER, PODMAN, Component, ImageError, Tool
from tools.sources import ROOT

from pipelineserve_engine.sglang.targets import VERSIONS

TORCH_LOCK = """
lock-version = "1.0"
[[packages]]
name = "torch"
version = "2.13.0+cpu"
wheels = [{ url = "https://index.example/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl" }]
"""


PINNED = [component for component in Component if component.is_pinned]


def a_program(folder: Path, name: str, status: int) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho 'cannot connect to the daemon' >&2\nexit {status}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_every_dockerfile_is_of_a_component_and_the_other_way_round() -> None:
    folders = {path.parent.name for path in ROOT.glob("images/*/Dockerfile")}
    assert {component.value for component in Component} == folders


@pytest.mark.parametrize("component", PINNED)
def test_an_image_holds_pinned_versions_only(component: Component) -> None:
    lines = wheels.requirements_of(component.value)
    assert {"pydantic", "pyyaml"} <= {Requirement(line).name for line in lines}
    assert all(str(Requirement(line).specifier).startswith("==") for line in lines)


@pytest.mark.parametrize("component", [Component.OPERATOR, Component.CONTROLLER])
def test_only_the_engine_s_image_holds_torch(component: Component) -> None:
    others = {Requirement(line).name for line in wheels.requirements_of(component.value)}
    assert {"torch", "transformers"} & others == set()
    engine = {Requirement(line).name for line in wheels.requirements_of("engine")}
    assert {"torch", "transformers", "grpcio"} <= engine


@pytest.mark.parametrize("component", PINNED)
def test_a_dockerfile_asks_no_index_and_runs_as_nobody(component: Component) -> None:
    text = (ROOT / "images" / component.value / "Dockerfile").read_text()
    instructions = text.replace("\\\n", " ").splitlines()
    installs = [line for line in instructions if "pip install" in line]
    assert len(installs) == 2
    assert all("--no-index" in line and "--no-cache-dir" in line for line in installs)
    assert "USER 65532:65532" in instructions
    assert "FROM ${BASE_IMAGE}" in instructions


def test_a_missing_pin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "pins", lambda _: {})
    with pytest.raises(wheels.WheelError, match=r"no pin for .*pydantic"):
        wheels.requirements_of("controller")


def test_the_cpu_build_s_address_is_taken_from_the_lock() -> None:
    address = wheels.wheel_address(TORCH_LOCK, "torch==2.13.0")
    assert address == "https://index.example/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl"
    with pytest.raises(wheels.WheelError, match=r"torch==2\.12\.0"):
        wheels.wheel_address(TORCH_LOCK, "torch==2.12.0")


def test_the_first_tool_that_works_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    a_program(tmp_path, "buildah", 1)
    a_program(tmp_path, "podman", 0)
    a_program(tmp_path, "docker", 0)
    assert images.chosen_tool(None) == PODMAN
    assert images.chosen_tool("docker") == DOCKER


def test_that_none_works_is_said_with_each_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    a_program(tmp_path, "docker", 1)
    with pytest.raises(ImageError) as refused:
        images.chosen_tool(None)
    assert "buildah: not installed" in str(refused.value)
    assert "docker: `docker info` failed" in str(refused.value)


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(ImageError, match='"kaniko", expected one of buildah, podman, docker'):
        images.chosen_tool("kaniko")


@pytest.mark.parametrize("tool", [BUILDAH, PODMAN, DOCKER], ids=lambda tool: str(tool.name))
def test_each_tool_is_told_context_name_and_arguments(tool: Tool) -> None:
    command = tool.build_command(Path("/context"), "a/b:1", {"BASE_IMAGE": "base"})
    assert command[0] == tool.name
    assert {"--build-arg=BASE_IMAGE=base", "--tag=a/b:1"} <= set(command)
    assert command[-1] == "/context"
    saved = tool.save_command("a/b:1", Path("/a.tar"))
    assert any("/a.tar" in argument for argument in saved)
    assert any("a/b:1" in argument for argument in saved)


def test_settings_come_from_the_environment_and_empty_ones_do_not_count() -> None:
    given: dict[str, Any] = {
        "IMAGE_PREFIX": "mirror.example/ps",
        "IMAGE_TAG": "",
        "BASE_IMAGE": "b",
    }
    settings = images.settings_from(given)
    version = images.project_version()
    assert settings.image(Component.ENGINE) == f"mirror.example/ps/engine:{version}"
    assert settings.arguments(Component.ENGINE, "d")["BASE_IMAGE"] == "b"
    assert settings.archives is None


def test_without_a_base_pinned_images_get_this_python_and_sglang_its_own() -> None:
    settings = images.settings_from({"BASE_IMAGE": ""})
    version = ".".join(map(str, sys.version_info[:2]))
    base = settings.arguments(Component.OPERATOR, "d")["BASE_IMAGE"]
    assert base == f"docker.io/library/python:{version}-slim-bookworm"
    assert "BASE_IMAGE" not in settings.arguments(Component.SGLANG, "d")
    assert (
        f"ARG BASE_IMAGE=docker.io/lmsysorg/sglang:v{VERSIONS[-1]}"
        in (ROOT / "images" / "sglang" / "Dockerfile").read_text().splitlines()
    )


def test_an_unknown_component_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        images.main(["sidecar"])
    assert "expected operator, controller, engine, sglang" in capsys.readouterr().err
