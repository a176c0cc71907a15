"""The add-on knows which SGLang it was made for, and what it hooks there."""

import json
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path

import pytest

from pipelineserve_engine.sglang.targets import TARGETS, VERSIONS, mismatches

# What the real packages say of themselves, written down by tools/sglang_signatures.
SIGNATURES = json.loads(Path(__file__).with_name("signatures.json").read_text())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_that_was_tried_is_fine(version: str) -> None:
    assert mismatches(version, []) == []


def test_another_version_is_one_that_nobody_has_tried() -> None:
    assert mismatches("0.5.24", []) == ["SGLang 0.5.24: expected 0.5.22 or 0.5.23"]


def test_what_is_missing_is_told_beside_the_version() -> None:
    def nothing(path: str) -> object:
        raise AttributeError(path)

    found = mismatches("0.5.24", TARGETS[:1], nothing)
    assert found[1:] == [f"{TARGETS[0].path} is missing"]


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
