"""A digest of the code and data that figures depend on, so that no stale figure is taken over."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

# What can change a figure. Rows and reports only read figures; engine, controller and load tool
# have no part in them.
_PACKAGES = (
    "pipelineserve.load",
    "pipelineserve.partition",
    "pipelineserve.policy",
    "pipelineserve.scheduler",
    "pipelineserve_simulator",
)
_READING_ONLY = "reproduce"
_FIGURE_MODULES = ("figures.py", "predictors.py", "systems.py", "trials.py")
_SUFFIXES = (".py", ".yaml")


@cache
def code_fingerprint() -> str:
    """The same for the same sources and profiles, on every machine."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for name, content in _sources(package):
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def _sources(package: str) -> Iterator[tuple[str, bytes]]:
    parent, _, last = package.rpartition(".")
    root = files(parent) / last if parent else files(package)
    if not root.is_dir():
        root = files(parent) / f"{last}.py"
        yield package, root.read_bytes()
        return
    yield from _under(root, package)


def _under(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _under(entry, f"{path}/{entry.name}")
        elif entry.name.endswith(_SUFFIXES) and _is_for_figures(path, entry.name):
            yield f"{path}/{entry.name}", entry.read_bytes()


def _is_for_figures(path: str, name: str) -> bool:
    if _READING_ONLY not in path.split("/"):
        return True
    return path.endswith(f"/{_READING_ONLY}") and name in _FIGURE_MODULES
