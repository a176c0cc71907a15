"""Finds the product's Python files and reads them without importing them."""

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Module:
    """One Python file; `name` is what an import statement says."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.path.read_text(), filename=str(self.path))

    @property
    def duty(self) -> str:
        """The docstring's first line, or nothing."""
        return (ast.get_docstring(self.tree) or "").partition("\n")[0]


def read_pyproject() -> dict[str, Any]:
    """The project's settings."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def package_folders() -> tuple[Path, ...]:
    """The packages that the wheel holds, as pyproject.toml lists them."""
    wheel = read_pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]
    return tuple(ROOT / folder for folder in wheel["packages"])


def modules_of(package_folder: Path) -> tuple[Module, ...]:
    """Every module of one package in the order of their names, less generated stubs."""
    parent = package_folder.parent
    modules = []
    for path in package_folder.rglob("*.py"):
        if "_pb2" in path.name:
            continue
        parts = path.relative_to(parent).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        modules.append(Module(name, path))
    return tuple(sorted(modules, key=lambda module: module.name))


def product_modules() -> tuple[Module, ...]:
    """Every module that the wheel holds."""
    return tuple(module for folder in package_folders() for module in modules_of(folder))


def source_files(*folders: str) -> tuple[Path, ...]:
    """Every Python file under these folders of the checkout."""
    return tuple(sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")))


def imported_names(tree: ast.AST) -> Iterator[str]:
    """The dotted names that a file's import statements name, wherever they stand in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
