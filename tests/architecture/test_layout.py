"""The checkout is laid out as docs/architecture.md says, and nothing shadows the language."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from tools.sources import ROOT, package_folders, product_modules, read_pyproject, source_files


def ignored_folders() -> set[str]:
    lines = (ROOT / ".gitignore").read_text().splitlines()
    return {line.rstrip("/") for line in lines if line.endswith("/")}


def folders_on_disk() -> set[str]:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    return {name for name in folders - ignored_folders() if not name.startswith(".")}


def folders_in_table() -> set[str]:
    page = (ROOT / "docs" / "architecture.md").read_text()
    return set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE))


def is_shadowing(module_name: str) -> bool:
    last = module_name.rpartition(".")[2]
    return last in sys.stdlib_module_names and not last.startswith("__")


def test_top_level_folders_are_those_of_the_architecture_page() -> None:
    assert folders_on_disk() == folders_in_table()


@pytest.mark.parametrize("package", package_folders(), ids=lambda folder: folder.name)
def test_component_folder_holds_its_package_and_nothing_else(package: Path) -> None:
    # A Python file beside the package would be importable under a bare name: an `__init__.py` in
    # `operator/`, say, would hide the standard library's module of that name.
    contents = {path.name for path in package.parent.iterdir()} - {"__pycache__"}
    assert contents == {package.name}


def test_every_product_folder_with_python_files_is_a_package() -> None:
    folders = {module.path.parent for module in product_modules()}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_no_test_folder_is_a_package() -> None:
    assert [path for path in source_files("tests") if path.name == "__init__.py"] == []


def test_every_package_ships_its_types() -> None:
    assert [folder for folder in package_folders() if not (folder / "py.typed").exists()] == []


def test_every_component_folder_is_known_to_each_tool() -> None:
    tools = read_pyproject()["tool"]
    folders = {folder.parent.name for folder in package_folders()}
    assert set(tools["hatch"]["build"]["dev-mode-dirs"]) == folders
    assert folders <= set(tools["mypy"]["mypy_path"])
    assert set(tools["importlinter"]["root_packages"]) == {path.name for path in package_folders()}


@pytest.mark.parametrize("target", read_pyproject()["project"]["scripts"].values())
def test_commands_name_a_module_that_exists(target: str) -> None:
    assert importlib.util.find_spec(target.partition(":")[0]) is not None


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    assert [module.name for module in product_modules() if is_shadowing(module.name)] == []


@pytest.mark.parametrize("name", ["pipelineserve.queue", "pipelineserve.api.types", "operator"])
def test_shadowing_is_seen_at_any_depth(name: str) -> None:
    assert is_shadowing(name)


def test_entry_modules_do_not_count_as_shadowing() -> None:
    assert not is_shadowing("pipelineserve_engine.models.__main__")
