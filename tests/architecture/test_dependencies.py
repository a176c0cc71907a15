"""The requirement tables in pyproject.toml say what the code imports, and the pins hold it."""

import ast
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.distributions import closure, declared, is_third_party, names, providers
from tools.sources import ROOT, imported_names, package_folders, read_pyproject, source_files

EXTRA_OF_FOLDER = {
    "core": None,
    "core/pipelineserve/wire": "wire",
    "engine": "engine",
    "engine/pipelineserve_engine/addon": "sglang",  # and "vllm", which declares the same
    "engine/pipelineserve_engine/sglang": "sglang",
    "engine/pipelineserve_engine/vllm": "vllm",
    "controller": "controller",
    "operator": "operator",
    "simulator": "simulator",
    "cli": "cli",
    "cli/pipelineserve_cli/get": "cluster",
}
# Add-ons and the tests' platform run inside an engine that is there, which brings these.
BROUGHT_BY_ENGINES = frozenset({"sglang", "vllm", "torch", "psutil"})

# Public parts of a declared distribution that are distributions of their own.
COMES_WITH = {"pydantic-core": "pydantic", "starlette": "fastapi"}
# Extras of ours that another one includes.
INCLUDES = {
    "engine": ("wire",),
    "controller": ("wire",),
    "sglang": ("wire",),
    "vllm": ("wire",),
    "operator": ("wire",),
    "cluster": ("cli",),
}
# Declared although no import names them, each with its user.
USED_WITHOUT_IMPORT = {
    "grpcio-tools": "tools/stubs.py runs it as a module",
    "import-linter": "make imports",
    "mypy": "make types",
    "mypy-protobuf": "tools/stubs.py runs it as a plugin",
    "pytest-randomly": "a plugin of pytest",
    "pytest-timeout": "a plugin of pytest",
    "pytest-xdist": "a plugin of pytest",
    "ruff": "make lint, make format",
    "types-grpcio": "types for mypy",
    "types-protobuf": "types for mypy",
    "types-pyyaml": "types for mypy",
}
# The CPU build of torch has none of these; they come with the CUDA build, pinned by torch itself.
CUDA_PREFIXES = ("nvidia-", "cuda-", "triton")


def own_names() -> set[str]:
    packages = {folder.name for folder in package_folders()}
    support = {path.stem for path in (ROOT / "tests" / "support").iterdir()}
    return packages | support | {"tools", "bench"}


def third_party_imports(*folders: str) -> set[str]:
    """What the files under these folders import, less those that have an extra of their own."""
    apart = {
        ROOT / inner
        for inner in EXTRA_OF_FOLDER
        for folder in folders
        if inner.startswith(f"{folder}/")
    }
    found: set[str] = set()
    for path in source_files(*folders):
        if apart & set(path.parents):
            continue
        found |= {name.partition(".")[0] for name in imported_names(ast.parse(path.read_text()))}
    return {name for name in found if is_third_party(name, own_names())}


def allowed(extra: str | None) -> frozenset[str]:
    pyproject = read_pyproject()
    wanted = names(declared(pyproject, None))
    for name in () if extra is None else (extra, *INCLUDES.get(extra, ())):
        wanted |= names(declared(pyproject, name))
    return wanted | {part for part, whole in COMES_WITH.items() if whole in wanted}


def undeclared(imports: set[str], distributions: frozenset[str]) -> set[str]:
    return {name for name in imports if not providers(name) & distributions}


def imported_distributions(*folders: str) -> set[str]:
    return {name for found in third_party_imports(*folders) for name in providers(found)}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def everything_needed() -> frozenset[str]:
    pyproject = read_pyproject()
    extras = (None, *pyproject["project"]["optional-dependencies"])
    needed = [line for extra in extras for line in declared(pyproject, extra)]
    return closure([*needed, *map(Requirement, pyproject["build-system"]["requires"])])


def test_every_component_folder_has_its_extra() -> None:
    folders = {folder for folder in EXTRA_OF_FOLDER if "/" not in folder}
    assert folders == {folder.parent.name for folder in package_folders()}


@pytest.mark.parametrize(("folder", "extra"), EXTRA_OF_FOLDER.items())
def test_component_imports_only_what_its_extra_declares(folder: str, extra: str | None) -> None:
    brought = BROUGHT_BY_ENGINES if extra in ("sglang", "vllm") else frozenset()
    assert undeclared(third_party_imports(folder) - brought, allowed(extra)) == set()


def test_tests_and_tools_import_only_what_some_extra_declares() -> None:
    extras = read_pyproject()["project"]["optional-dependencies"]
    everything = frozenset().union(*(allowed(extra) for extra in extras))
    imported = third_party_imports("tests", "tools", "bench") - BROUGHT_BY_ENGINES
    assert undeclared(imported, everything) == set()


def test_an_undeclared_import_is_found() -> None:
    assert undeclared({"torch", "yaml"}, allowed(None)) == {"torch"}


@pytest.mark.parametrize(
    ("extra", "folders"),
    [
        (None, ("core", "engine", "controller", "operator", "simulator", "cli")),
        ("wire", ("core/pipelineserve/wire",)),
        ("engine", ("engine",)),
        ("controller", ("controller",)),
        ("operator", ("operator",)),
        ("simulator", ("simulator",)),
        ("cli", ("cli",)),
        ("cluster", ("cli/pipelineserve_cli/get",)),
        ("dev", ("tests", "tools", "bench")),
    ],
)
def test_every_declared_requirement_is_used(extra: str | None, folders: tuple[str, ...]) -> None:
    unused = names(declared(read_pyproject(), extra)) - imported_distributions(*folders)
    assert unused - set(USED_WITHOUT_IMPORT) == set()


def test_no_exception_outlives_its_reason() -> None:
    imported = imported_distributions(
        "core", "engine", "controller", "operator", "simulator", "cli", "tests", "tools", "bench"
    )
    assert imported & set(USED_WITHOUT_IMPORT) == set()
    assert set(USED_WITHOUT_IMPORT) <= everything_needed()


def test_everything_needed_is_pinned_to_the_version_installed() -> None:
    needed = {name for name in everything_needed() if not name.startswith(CUDA_PREFIXES)}
    installed = {name: metadata.version(name).partition("+")[0] for name in needed}
    assert {name: pins().get(name) for name in needed} == installed


@pytest.mark.parametrize("path", [ROOT / "constraints.txt"], ids=["constraints.txt"])
def test_pins_name_versions_only(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if "://" in line or line.count("==") != 1 or "+" in line] == []
