"""The script that makes the environment decides rightly what is left to do."""

import ast
import dataclasses
import os
import platform
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import bootstrap
from tools.sources import ROOT, read_pyproject

SCRIPT = ROOT / "tools" / "bootstrap.py"


def make_environment(folder: Path, version: str = platform.python_version()) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n")
    (folder / "bin" / "python").symlink_to("/usr/bin/env")
    script = folder / "bin" / "pytest"
    script.write_text(f"#!{folder}/bin/python\nimport pytest\n")
    script.chmod(0o755)
    (folder / "lib").mkdir()
    (folder / "lib" / "module.py").write_text("VALUE = 1\n")
    return folder


def torch_report(version: str, *requires: str) -> dict[str, Any]:
    return {"install": [{"metadata": {"version": version, "requires_dist": list(requires)}}]}


def stamp_of(venv: Path) -> bootstrap.Stamp:
    return bootstrap.Stamp(place=str(venv), dependencies="d", project="p")


def test_an_old_python_can_read_the_script_as_far_as_its_advice() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 7))
    statements = [node for node in tree.body if not isinstance(node, ast.Expr)]
    check = next(index for index, node in enumerate(statements) if isinstance(node, ast.If))
    before = {alias.name for node in statements[:check] for alias in getattr(node, "names", ())}
    assert "version_info" in ast.unparse(statements[check])
    assert before == {"platform", "sys"}  # both are older than any Python that may run this


def test_requirements_follow_own_extras() -> None:
    pyproject: dict[str, Any] = {
        "build-system": {"requires": ["builder"]},
        "project": {
            "name": "own",
            "dependencies": ["base>=1"],
            "optional-dependencies": {
                "one": ["first"],
                "two": ["second", "base>=1"],
                "dev": ["own[one, two]", "tester"],
            },
        },
    }
    lines = bootstrap.required_distributions(pyproject, ["dev"])
    assert lines == ["builder", "base>=1", "tester", "first", "second"]


def test_no_requirement_of_this_project_names_the_project() -> None:
    lines = bootstrap.required_distributions(read_pyproject(), bootstrap.EXTRAS)
    assert [line for line in lines if line.startswith("pipelineserve")] == []
    assert any(line.startswith("torch") for line in lines)


@given(st.lists(st.text()), st.lists(st.text()))
def test_digests_differ_when_the_parts_differ(one: list[str], other: list[str]) -> None:
    assert (bootstrap.digest(*one) == bootstrap.digest(*other)) == (one == other)


@pytest.mark.parametrize(
    "report",
    [
        torch_report("2.13.0", "filelock", 'nvidia-nccl-cu13==2.29; platform_system == "Linux"'),
        torch_report("2.13.0", "cuda-toolkit==13"),
    ],
)
def test_a_build_that_requires_nvidia_libraries_is_a_cuda_build(report: dict[str, Any]) -> None:
    assert bootstrap.is_cuda_build(report)


@pytest.mark.parametrize(
    "report",
    [torch_report("2.13.0", "filelock", "sympy"), torch_report("2.13.0+cpu", "nvidia-nccl-cu13")],
)
def test_a_build_without_them_or_marked_cpu_is_none(report: dict[str, Any]) -> None:
    assert not bootstrap.is_cuda_build(report)


def test_the_torch_build_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINESERVE_TORCH", "cuda")
    assert bootstrap.wanted_torch_build() == "cuda"


def test_names_the_variable_when_the_chosen_torch_build_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIPELINESERVE_TORCH", "rocm")
    with pytest.raises(bootstrap.BootstrapError, match=r'PIPELINESERVE_TORCH is "rocm", expected'):
        bootstrap.wanted_torch_build()


def test_takes_the_default_build_when_a_gpu_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PIPELINESERVE_TORCH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.wanted_torch_build() == "cpu"
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    assert bootstrap.wanted_torch_build() == "cuda"
    tool.write_text("#!/bin/sh\nexit 9\n")  # the driver is installed, but no GPU is there
    assert bootstrap.wanted_torch_build() == "cpu"


def test_a_stamp_is_read_back_as_written(tmp_path: Path) -> None:
    venv = make_environment(tmp_path / "venv")
    bootstrap.write_stamp(venv, stamp_of(venv))
    assert bootstrap.read_stamp(venv) == stamp_of(venv)
    assert bootstrap.is_current(venv, stamp_of(venv))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"place": "x"}', '{"unknown": 1}'])
def test_a_damaged_stamp_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / bootstrap.STAMP_NAME).write_text(text)
    assert bootstrap.read_stamp(tmp_path) is None


@pytest.mark.parametrize("field", ["place", "dependencies", "project"])
def test_an_environment_is_not_current_when_one_part_changed(tmp_path: Path, field: str) -> None:
    venv = make_environment(tmp_path / "venv")
    bootstrap.write_stamp(venv, stamp_of(venv))
    changed = dataclasses.replace(stamp_of(venv), **{field: "other"})
    assert not bootstrap.is_current(venv, changed)


def test_an_environment_whose_python_is_gone_is_not_current(tmp_path: Path) -> None:
    venv = make_environment(tmp_path / "venv")
    bootstrap.write_stamp(venv, stamp_of(venv))
    (venv / "bin" / "python").unlink()
    assert not bootstrap.is_current(venv, stamp_of(venv))


def test_an_interrupted_environment_is_used_further(tmp_path: Path) -> None:
    assert bootstrap.is_usable(make_environment(tmp_path / "venv"))


@pytest.mark.parametrize("version", ["3.9.1", f"{platform.python_version()}1"])
def test_an_environment_of_another_python_is_made_anew(tmp_path: Path, version: str) -> None:
    assert not bootstrap.is_usable(make_environment(tmp_path / "venv", version))


def test_an_environment_that_was_moved_is_made_anew(tmp_path: Path) -> None:
    venv = make_environment(tmp_path / "venv")
    bootstrap.write_stamp(venv, stamp_of(tmp_path / "elsewhere"))
    assert not bootstrap.is_usable(venv)


def test_a_cloned_environment_shares_files_but_runs_its_own_python(tmp_path: Path) -> None:
    source, target = make_environment(tmp_path / "source"), tmp_path / "target"
    bootstrap.clone_venv(source, target)
    assert (target / "lib" / "module.py").samefile(source / "lib" / "module.py")
    assert (target / "bin" / "pytest").read_text().startswith(f"#!{target}/bin/python\n")
    assert os.access(target / "bin" / "pytest", os.X_OK)


def test_cloning_leaves_the_source_as_it_was(tmp_path: Path) -> None:
    source = make_environment(tmp_path / "source")
    before = (source / "bin" / "pytest").read_text()
    bootstrap.clone_venv(source, tmp_path / "target")
    assert (source / "bin" / "pytest").read_text() == before


def test_cloning_carries_no_stamp_and_replaces_what_was_there(tmp_path: Path) -> None:
    source, target = make_environment(tmp_path / "source"), make_environment(tmp_path / "target")
    bootstrap.write_stamp(source, stamp_of(source))
    (target / "left over").touch()
    bootstrap.clone_venv(source, target)
    assert bootstrap.read_stamp(target) is None
    assert not (target / "left over").exists()


def test_copies_where_no_hard_link_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("text")
    (tmp_path / "target").touch()  # a name that is taken refuses a link, as another device does
    bootstrap.link_or_copy(str(tmp_path / "source"), str(tmp_path / "target"))
    assert (tmp_path / "target").read_text() == "text"


def test_a_failed_step_shows_its_last_lines_and_advice() -> None:
    command = ["sh", "-c", "echo no such index; exit 3"]
    with pytest.raises(bootstrap.BootstrapError, match=r"(?s)install it; .*no such index.*Check"):
        bootstrap.run_shown(command, "install it", "Check the network.")
