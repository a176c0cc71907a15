"""Builds the images of the components with buildah, podman or docker, whichever works here.

Settings are environment variables, so that `make images` needs no others:

    IMAGE_PREFIX    before the component's name; pipelineserve unless given
    IMAGE_TAG       the project's version unless given
    BASE_IMAGE      an image with this Python version and pip; for SGLang, one that has SGLang
    IMAGE_TOOL      buildah, podman or docker; else the first that works, in this order
    IMAGE_ARCHIVES  a folder that also gets COMPONENT.tar, for clusters without a registry
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tools.bootstrap import BootstrapError
from tools.sources import ROOT, read_pyproject
from tools.wheels import WheelError, digest_of, gather, product_wheel, requirements_of

WORK_FOLDER = ROOT / ".cache" / "images"
PYTHON = ".".join(platform.python_version_tuple()[:2])


class Component(Enum):
    """What has an image; the name is also the extra that says what is in it."""

    OPERATOR = "operator"
    CONTROLLER = "controller"
    ENGINE = "engine"
    SGLANG = "sglang"

    @property
    def is_pinned(self) -> bool:
        """Whether pinned wheels are all that its base lacks; SGLang's base has pins of its own."""
        return self is not Component.SGLANG


class ImageError(Exception):
    """The images cannot be built; the message says what to do."""


@dataclass(frozen=True)
class Tool:
    """A program that builds images.

    Attributes:
        name: of the program.
        probe: arguments that succeed where it can work; docker's client is no proof of its daemon.
        build: arguments before those that all have in common.
    """

    name: str
    probe: tuple[str, ...]
    build: tuple[str, ...]

    def build_command(self, folder: Path, image: str, arguments: Mapping[str, str]) -> list[str]:
        """Builds the Dockerfile in `folder`, which is the context too."""
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        return [self.name, *self.build, *given, f"--tag={image}", str(folder)]

    def save_command(self, image: str, archive: Path) -> list[str]:
        """Writes the image with its name to an archive that `ctr`, `kind` and others load."""
        if self is BUILDAH:
            return [self.name, "push", image, f"docker-archive:{archive}:{image}"]
        return [self.name, "save", f"--output={archive}", image]


BUILDAH = Tool("buildah", ("images",), ("bud", "--layers", "--format=docker"))
PODMAN = Tool("podman", ("info",), ("build", "--layers", "--format=docker"))
DOCKER = Tool("docker", ("info",), ("build",))
TOOLS = (BUILDAH, PODMAN, DOCKER)


@dataclass(frozen=True)
class Settings:
    """What the environment says; the module's docstring explains each."""

    prefix: str
    tag: str
    base_image: str | None
    tool: str | None
    archives: Path | None

    def image(self, component: Component) -> str:
        """The full name of a component's image."""
        return f"{self.prefix}/{component.value}:{self.tag}"

    def arguments(self, component: Component, product_digest: str) -> dict[str, str]:
        """Of the build; without a base among them the Dockerfile's own is taken."""
        arguments = {"VERSION": self.tag, "PRODUCT_DIGEST": product_digest}
        if self.base_image is not None:
            arguments["BASE_IMAGE"] = self.base_image
        elif component.is_pinned:
            arguments["BASE_IMAGE"] = f"docker.io/library/python:{PYTHON}-slim-bookworm"
        return arguments


def settings_from(environment: Mapping[str, str]) -> Settings:
    """An empty variable counts as one that is not there."""
    archives = environment.get("IMAGE_ARCHIVES")
    return Settings(
        prefix=environment.get("IMAGE_PREFIX") or "pipelineserve",
        tag=environment.get("IMAGE_TAG") or project_version(),
        base_image=environment.get("BASE_IMAGE") or None,
        tool=environment.get("IMAGE_TOOL") or None,
        archives=Path(archives) if archives else None,
    )


def project_version() -> str:
    """As pyproject.toml says."""
    return str(read_pyproject()["project"]["version"])


def chosen_tool(wanted: str | None) -> Tool:
    """The tool that was asked for, or the first that works.

    Raises:
        ImageError: it is none that is known, or none works here.
    """
    known = {tool.name: tool for tool in TOOLS}
    if wanted is not None and wanted not in known:
        raise ImageError(f'IMAGE_TOOL is "{wanted}", expected one of {", ".join(known)}')
    candidates = TOOLS if wanted is None else (known[wanted],)
    reasons = {tool.name: why_not(tool) for tool in candidates}
    for tool in candidates:
        if reasons[tool.name] is None:
            return tool
    listed = "\n".join(f"    {name}: {reason}" for name, reason in reasons.items())
    raise ImageError(
        f"no tool that builds images works here:\n{listed}\n"
        "Install one of them, for example: apt-get install buildah"
    )


def why_not(tool: Tool) -> str | None:
    """Why a tool cannot be used; None if it can."""
    if shutil.which(tool.name) is None:
        return "not installed"
    probed = subprocess.run([tool.name, *tool.probe], capture_output=True, text=True, check=False)
    if probed.returncode == 0:
        return None
    said = probed.stderr.strip().splitlines() or [f"exit status {probed.returncode}"]
    return f"`{tool.name} {' '.join(tool.probe)}` failed: {said[-1]}"


def prepared_context(component: Component) -> tuple[Path, str]:
    """The folder that an image is built from, and the digest of the product's wheel in it.

    Raises:
        WheelError: a wheel is missing and cannot be fetched.
    """
    product = product_wheel(WORK_FOLDER / "product")
    context = WORK_FOLDER / component.value
    shutil.rmtree(context, ignore_errors=True)
    (context / "product").mkdir(parents=True)
    (context / "product" / product.name).hardlink_to(product)
    if component.is_pinned:
        add_dependencies(context, component)
    shutil.copy(ROOT / "images" / component.value / "Dockerfile", context / "Dockerfile")
    return context, digest_of(product)


def add_dependencies(context: Path, component: Component) -> None:
    """Put a component's pinned wheels into the folder, and the list of them.

    Raises:
        WheelError: a wheel is missing and cannot be fetched.
    """
    requirements = requirements_of(component.value)
    (context / "dependencies").mkdir(parents=True)
    for wheel in gather(requirements, WORK_FOLDER / "wheels"):
        (context / "dependencies" / wheel.name).hardlink_to(wheel)
    (context / "requirements.txt").write_text("".join(f"{line}\n" for line in requirements))


def build(component: Component, settings: Settings, tool: Tool) -> None:
    """Build one image, and save it where that is wanted.

    Raises:
        ImageError: the tool fails; what it said is on stderr already.
        WheelError: a wheel is missing and cannot be fetched.
    """
    image, started_s = settings.image(component), time.monotonic()
    context, product_digest = prepared_context(component)
    arguments = settings.arguments(component, product_digest)
    needed = (
        f"Python {PYTHON} with pip on {platform.machine()}, since the wheels are for that"
        if component.is_pinned
        else "SGLang and pip"
    )
    run(
        tool.build_command(context, image, arguments),
        f"build {image}",
        f"The base image must hold {needed}; BASE_IMAGE names another one.",
    )
    if settings.archives is not None:
        settings.archives.mkdir(parents=True, exist_ok=True)
        archive = settings.archives / f"{component.value}.tar"
        archive.unlink(missing_ok=True)  # buildah adds to no archive
        run(tool.save_command(image, archive), f"save {image}", "Is the disk full?")
    print(f"images: {image} is built after {time.monotonic() - started_s:.0f} s", flush=True)


def run(command: Sequence[str], purpose: str, advice: str) -> None:
    """Run a program that says by itself how it goes."""
    done = subprocess.run(command, check=False, stdout=sys.stderr)
    if done.returncode != 0:
        raise ImageError(
            f"could not {purpose}: {command[0]} ended with {done.returncode}. {advice}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the images that are named, or all but SGLang's; 0 when they are there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [component.value for component in Component]
    parser.add_argument("components", nargs="*", metavar="COMPONENT", help=", ".join(names))
    pinned = [component.value for component in Component if component.is_pinned]
    wanted = parser.parse_args(arguments).components or pinned
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"no image for {', '.join(unknown)}; expected {', '.join(names)}")
    if sys.platform != "linux":
        print(f"images: they are built on Linux, this is {sys.platform}", file=sys.stderr)
        return 1
    settings = settings_from(os.environ)
    try:
        tool = chosen_tool(settings.tool)
        for name in wanted:
            build(Component(name), settings, tool)
    except (ImageError, WheelError, BootstrapError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
