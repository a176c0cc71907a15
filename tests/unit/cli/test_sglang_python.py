"""The Python that stands for SGLang's image: which one it is, and what is missing in it."""

import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from local_resources import QUICKSTART
from pipelineserve.errors import EngineUnavailableError, InvalidInputError
from pipelineserve_cli import sglang_python
from pipelineserve_cli.local import up
from pipelineserve_cli.sglang_python import chosen_python, require_sglang


def a_program(folder: Path, text: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_given_one_is_taken_by_the_link_that_it_is_given_by(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert chosen_python(link) == link


def test_this_one_is_taken_only_if_it_has_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_python(None) is None
    monkeypatch.setattr(sglang_python, "_SGLANG", "pipelineserve")
    assert chosen_python(None) == Path(sys.executable)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineUnavailableError, match=r"has no sglang; install SGLang there"):
        require_sglang(Path(sys.executable))
    monkeypatch.setattr(sglang_python, "_NEEDED", ("json", "not_there.at_all", "not_here"))
    with pytest.raises(EngineUnavailableError, match=r"has no not_there\.at_all and no not_here;"):
        require_sglang(Path(sys.executable))
    monkeypatch.setattr(sglang_python, "_NEEDED", ("json",))
    require_sglang(Path(sys.executable))


def test_what_is_no_python_is_refused_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match="ended with 3: not me"):
        require_sglang(a_program(tmp_path, "echo not me >&2; exit 3"))
    with pytest.raises(EngineUnavailableError, match="cannot be run"):
        require_sglang(tmp_path / "missing")


def test_a_manifest_with_sglang_is_refused_where_there_is_none(tmp_path: Path) -> None:
    manifest = tmp_path / "sglang.yaml"
    text = QUICKSTART.read_text()
    assert "type: Torch" in text
    manifest.write_text(text.replace("type: Torch", "type: SGLang"))
    refused = CliRunner().invoke(up, ["-f", str(manifest)])
    assert isinstance(refused.exception, InvalidInputError)
    assert "--sglang-python" in str(refused.exception)
    found = CliRunner().invoke(
        up, ["-f", str(manifest)], env={sglang_python.VARIABLE: sys.executable}
    )
    assert isinstance(found.exception, EngineUnavailableError)
    assert "has no sglang" in str(found.exception)
