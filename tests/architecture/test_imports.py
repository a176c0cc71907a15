"""Who may import whom, and that a component starts with no more than its extra installs."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tools.distributions import closure, declared, installed_imports, providers
from tools.sources import ROOT, modules_of, package_folders, read_pyproject

from pipelineserve_cli.commands import COMMANDS

# Refuses imports as if the distributions were not installed, then imports the named modules.
IMPORT_WITHOUT = """
import importlib, sys
blocked, wanted = (set(part.split(",")) for part in sys.argv[1:])
class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"{name} is not part of this extra", name=name)
sys.meta_path.insert(0, Refusal())
for name in sorted(wanted):
    importlib.import_module(name)
"""
BROKEN_CONTRACT = """
[importlinter]
root_packages = pipelineserve_engine
                pipelineserve
[importlinter:contract:1]
name = the engine does without core
type = forbidden
source_modules = pipelineserve_engine
forbidden_modules = pipelineserve
"""


def lint_imports(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = "import sys; from importlinter.cli import lint_imports_command as main; main()"
    command = [sys.executable, "-c", script, "--no-cache", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def import_names_outside(extras: Sequence[str]) -> set[str]:
    """Top-level imports that an installation with these extras lacks."""
    pyproject = read_pyproject()
    requirements = [line for extra in (None, *extras) for line in declared(pyproject, extra)]
    installed = closure(requirements)
    own = {folder.name for folder in package_folders()}
    names = set(installed_imports()) - own - set(sys.stdlib_module_names)
    return {name for name in names if not providers(name) & installed}


def import_with_only(extras: Sequence[str], modules: Sequence[str]) -> str:
    """The error of importing `modules` in such an installation; empty when there is none."""
    blocked = ",".join(sorted(import_names_outside(extras)))
    command = [sys.executable, "-c", IMPORT_WITHOUT, blocked, ",".join(modules)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stderr if answer.returncode else ""


def test_import_contracts_hold() -> None:
    answer = lint_imports()
    assert answer.returncode == 0, answer.stdout


def test_a_broken_import_contract_is_reported(tmp_path: Path) -> None:
    contract = tmp_path / "contracts.ini"
    contract.write_text(BROKEN_CONTRACT)
    answer = lint_imports("--config", str(contract))
    assert answer.returncode == 1
    assert "the engine does without core BROKEN" in answer.stdout


def test_core_imports_with_the_base_installation_alone() -> None:
    modules = [module.name for module in modules_of(ROOT / "core" / "pipelineserve")]
    base = [name for name in modules if not name.startswith("pipelineserve.wire")]
    assert import_with_only((), base) == ""
    assert import_with_only(("wire",), modules) == ""


def test_the_command_line_imports_without_the_engine_installed() -> None:
    assert import_with_only(("cli",), ["pipelineserve_cli.main", *COMMANDS.values()]) == ""


def test_the_installation_in_these_tests_lacks_what_it_should() -> None:
    outside = import_names_outside(("cli",))
    assert {"torch", "transformers", "fastapi", "zmq", "pytest"} <= outside
    assert outside.isdisjoint({"pydantic", "yaml", "click", "httpx", "rich"})


@pytest.mark.parametrize("module", ["torch", "fastapi", "click"])
def test_an_import_beyond_the_base_installation_is_refused(module: str) -> None:
    assert f"{module} is not part of this extra" in import_with_only((), [module])
