"""vLLM's processes load the add-on's entry point, and without settings nothing comes of it."""

import sys
import tomllib
from inspect import signature
from types import ModuleType

import pytest
from tools.sources import ROOT

from pipelineserve_engine.addon.settings import variable
from pipelineserve_engine.vllm import plugin

HOOK = plugin._hook


@pytest.fixture(autouse=True)
def unloaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As in a process that has just begun; what it hooks is noted."""
    hooked: list[str] = []
    monkeypatch.setattr(plugin._State, "is_loaded", False)
    monkeypatch.setattr(plugin, "_hook", lambda: hooked.append("stages"))
    monkeypatch.setattr(plugin, "installed_version", lambda: "0.32.0")
    monkeypatch.setattr(plugin, "mismatched_targets", lambda _: [])
    return hooked


def test_vllm_finds_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = project["entry-points"]["vllm.general_plugins"]
    assert found == {"pipelineserve": f"{plugin.__name__}:load"}


def test_without_settings_there_is_no_add_on(unloaded: list[str]) -> None:
    plugin.load()
    assert (unloaded, plugin.is_loaded()) == ([], False)


def test_with_settings_stages_are_timed_once(
    unloaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable("static_chunk_tokens"), "48")
    plugin.load()
    plugin.load()
    assert (unloaded, plugin.is_loaded()) == (["stages"], True)


def test_what_is_hooked_looks_as_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrapper:
        """vLLM's, of a worker."""

        def init_device(self) -> None:
            """As vLLM's."""

    before = signature(Wrapper.init_device)
    module = ModuleType("vllm.v1.worker.worker_base")
    monkeypatch.setattr(module, "WorkerWrapperBase", Wrapper, raising=False)
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.worker_base", module)
    HOOK()
    assert Wrapper.init_device.__wrapped__  # type: ignore[attr-defined] # it is hooked
    assert signature(Wrapper.init_device) == before


def test_another_version_is_not_touched(
    unloaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable("static_chunk_tokens"), "48")
    monkeypatch.setattr(plugin, "installed_version", lambda: "0.33.0")
    plugin.load()
    assert (unloaded, plugin.is_loaded()) == ([], True)


def test_wrong_settings_stop_the_start_and_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable("static_chunk_tokens"), "many")
    with pytest.raises(SystemExit, match="STATIC_CHUNK_TOKENS: expected a number of tokens"):
        plugin.load()
