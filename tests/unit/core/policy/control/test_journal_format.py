"""Frozen values become JSON and come back the same."""

import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.control.guards import ModeMemory
from pipelineserve.policy.control.journal_format import from_json, to_json


class Colour(Enum):
    """An enum."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class One:
    """A float and an enum."""

    number: float
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Other:
    """Another dataclass of a choice."""

    number: float


@dataclass(frozen=True)
class Everything:
    """One field of each kind."""

    either: One | Other
    maybe: One | None
    many: tuple[One, ...]
    pair: tuple[int, str]
    is_so: bool
    mode: ModeMemory[Colour]
    number: float | None


@dataclass(frozen=True)
class Unreadable:
    """A field that may change."""

    items: list[int]


FLOATS = st.floats(allow_nan=False)
ONES = st.builds(One, FLOATS, st.sampled_from(Colour))
VALUES = st.builds(
    Everything,
    either=ONES | st.builds(Other, FLOATS),
    maybe=st.none() | ONES,
    many=st.lists(ONES, max_size=3).map(tuple),
    pair=st.tuples(st.integers(), st.text()),
    is_so=st.booleans(),
    mode=st.builds(ModeMemory, st.sampled_from(Colour), st.none() | st.sampled_from(Colour)),
    number=st.none() | FLOATS,
)


@given(VALUES)
def test_a_value_comes_back_the_same_through_text(value: Everything) -> None:
    text = json.dumps(to_json(value), allow_nan=False)
    assert from_json(Everything, json.loads(text)) == value


def test_not_a_number_comes_back_as_such() -> None:
    assert math.isnan(from_json(Other, to_json(Other(math.nan))).number)


@pytest.mark.parametrize("number", [math.inf, -math.inf])
def test_infinity_comes_back(number: float) -> None:
    assert from_json(Other, to_json(Other(number))) == Other(number)


def test_a_choice_of_types_is_told_apart_by_name() -> None:
    value = Everything(Other(1.0), None, (), (1, "a"), True, ModeMemory(Colour.RED), None)
    assert to_json(value)["either"] == {"kind": "Other", "number": 1.0}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"number": "1"}, r"Other.number: expected a number, got '1'"),
        ({"number": True}, r"Other.number: expected a number, got True"),
        ({}, r"Other: expected the fields \['number'\]"),
        ({"number": 1.0, "more": 1}, r"Other: expected the fields \['number'\]"),
        ([], r"Other: expected the fields"),
    ],
)
def test_another_document_is_refused_at_its_path(document: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        from_json(Other, document)


def test_an_unknown_member_is_refused() -> None:
    with pytest.raises(ValueError, match=r"One.colour: expected one of red, blue, got 'green'"):
        from_json(One, {"number": 1.0, "colour": "green"})


def test_a_type_that_cannot_be_read_back_is_not_written() -> None:
    with pytest.raises(TypeError, match="can be read back"):
        to_json(Unreadable([1]))
