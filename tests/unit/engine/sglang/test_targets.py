"""The add-on hooks all of SGLang's functions that it needs as they should be, or none."""

import json
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path

import pytest

from pipelineserve_engine.sglang.targets import TARGETS, VERSIONS, Target, mismatches

# What the real packages say of themselves, written down by tools/sglang_signatures.
SIGNATURES = json.loads(Path(__file__).with_name("signatures.json").read_text())
FINE = Target("engine.Scheduler.step", ("self", "batch"))


class Scheduler:
    """Stands for SGLang's."""

    limit = 3

    def step(self, batch: object) -> None:
        """As it should be."""

    def changed(self, batch: object, mode: str) -> None:
        """Has one more than it should have."""


def resolve(path: str) -> object:
    found: object = getattr(Scheduler, path.rpartition(".")[2])
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_wrong_with_what_is_as_expected(version: str) -> None:
    assert mismatches(version, [FINE], resolve) == []


def test_another_version_is_one_that_nobody_has_tried() -> None:
    assert mismatches("0.5.24", [FINE], resolve) == ["SGLang 0.5.24: expected 0.5.22 or 0.5.23"]


def test_says_what_was_found_of_each_target() -> None:
    targets = [
        FINE,
        Target("engine.Scheduler.gone", ("self",)),
        Target("engine.Scheduler.changed", ("self", "batch")),
        Target("engine.Scheduler.limit", ("self",)),
    ]
    assert mismatches(VERSIONS[0], targets, resolve) == [
        "engine.Scheduler.gone is missing",
        "engine.Scheduler.changed: expected (self, batch), got (self, batch, mode)",
        "engine.Scheduler.limit: expected a function, got int",
    ]


def test_a_module_that_is_gone_is_a_mismatch() -> None:
    def nowhere(path: str) -> Callable[..., object]:
        raise ModuleNotFoundError(path)

    assert mismatches(VERSIONS[0], [FINE], nowhere) == ["engine.Scheduler.step is missing"]


def as_written_down(version: str) -> Callable[[str], object]:
    """Finds functions as that version of SGLang has them."""

    def found(path: str) -> object:
        if path not in SIGNATURES[version]:
            raise AttributeError(path)
        names = SIGNATURES[version][path]
        kind = Parameter.POSITIONAL_OR_KEYWORD
        function = lambda: None  # noqa: E731 - only what `inspect` says of it counts
        vars(function)["__signature__"] = Signature([Parameter(name, kind) for name in names])
        return function

    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_add_on_fits_what_is_written_down_of_each_version(version: str) -> None:
    assert mismatches(version, resolve=as_written_down(version)) == []


def test_nothing_is_written_down_that_the_add_on_does_not_hook() -> None:
    assert tuple(SIGNATURES) == VERSIONS
    for written in SIGNATURES.values():
        assert list(written) == [target.path for target in TARGETS]


def test_every_target_is_one_function_of_sglang() -> None:
    paths = [target.path for target in TARGETS]
    assert len(set(paths)) == len(paths)
    assert all(path.startswith("sglang.srt.") for path in paths)
