"""Pydantic's errors as faults: the field's path, what was expected, what was got."""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pipelineserve.api.paths import join, join_all, shortened
from pipelineserve.api.texts import PATTERNS
from pipelineserve.api.vocabulary import EXPECTATION
from pipelineserve.errors import Fault

_SHOWN_CHARACTERS = 60
_MEANINGS = {pattern.regex: pattern.meaning for pattern in PATTERNS}
# By pydantic's type of error, filled in from its context.
_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "enum": "{choices}",
    "literal_error": "{choices}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "greater_than": "more than {gt}",
    "too_long": "at most {max_length} entries",
    "too_short": "at least {min_length} entries",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "string_pattern_mismatch": "{meaning}",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The faults of a document's fields, and the paths whose values are not to be trusted."""

    faults: tuple[Fault, ...]
    malformed: frozenset[str]


def explain(error: ValidationError, root: type[BaseModel], ignored: str) -> Explanation:
    """Faults for every error but those of type `ignored`; `root` is the validated model."""
    faults: list[Fault] = []
    malformed: set[str] = set()
    for details in error.errors(include_url=False):
        if details["type"] == ignored:
            continue  # reported by whoever asked for it to be ignored
        path, message, meant = _fault_of(details, root)
        faults.append(Fault(path, message))
        malformed |= {path, meant}
    return Explanation(tuple(faults), frozenset(malformed))


def described(value: object) -> str:
    """`value` as a fault shows it: its kind, and the value itself where that is short."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    shown = shortened(json.dumps(value, default=str), _SHOWN_CHARACTERS)
    return f"{_kind(value)} {shown}"


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "the boolean"
    if isinstance(value, int):
        return "the integer"
    return "the number" if isinstance(value, float) else "the string"


def _fault_of(details: ErrorDetails, root: type[BaseModel]) -> tuple[str, str, str]:
    """Path, message, and the path of the field that was meant (the same unless misspelt)."""
    loc = details["loc"]
    path = join_all(*loc)
    if details["type"] == "extra_forbidden":
        known = _fields(_model_at(root, loc[:-1]))
        near = _nearest(str(loc[-1]), known)
        meant = join(join_all(*loc[:-1]), near) if near else path
        return path, _unknown_field(near, known), meant
    if details["type"] == "missing":
        field = _fields(_model_at(root, loc[:-1]))[str(loc[-1])]
        return path, f"required, but missing; {_example(str(loc[-1]), field)}", path
    return path, _message(details), path


def _unknown_field(near: str | None, known: Mapping[str, FieldInfo]) -> str:
    advice = f"did you mean {near}?" if near else f"the fields here are {', '.join(known)}"
    return f"unknown field; {advice}"


def _example(name: str, field: FieldInfo) -> str:
    return f"for example {name}: {json.dumps((field.examples or ['…'])[0])}"


def _nearest(name: str, known: Mapping[str, FieldInfo]) -> str | None:
    """The known field that is spelt most alike, whatever its case and underscores."""
    folded = {field.lower(): field for field in known}
    wanted = shortened(name.replace("_", "").replace("-", "").lower(), 64)
    near = difflib.get_close_matches(wanted, folded, n=1)
    return folded[near[0]] if near else None


def _fields(model: type[BaseModel] | None) -> dict[str, FieldInfo]:
    fields = model.model_fields if model else {}
    return {field.alias or name: field for name, field in fields.items()}


def _model_at(root: type[BaseModel], loc: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The model that the mapping at `loc` is validated by."""
    model: type[BaseModel] | None = root
    for part in loc:
        if isinstance(part, str):  # an index stays within its list's field
            field = _fields(model).get(part)
            model = _model_in(field.annotation) if field else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model within an optional, a tuple or an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in found if model), None)


def _message(details: ErrorDetails) -> str:
    if details["type"] == EXPECTATION:
        return details["msg"]
    expected = _EXPECTED.get(details["type"])
    if expected is None:
        return f"{details['msg']}, got {described(details['input'])}"
    context = dict(details.get("ctx", {}))
    context["choices"] = _choices(str(context.get("expected", "")))
    context["meaning"] = _MEANINGS.get(context.get("pattern", ""), "another text")
    return f"expected {expected.format(**context)}, got {_got(details, context)}{_advice(details)}"


def _got(details: ErrorDetails, context: Mapping[str, Any]) -> str:
    shown = described(details["input"])
    if "actual_length" in context:
        return str(context["actual_length"])
    return f"{len(details['input'])}: {shown}" if details["type"] == "string_too_long" else shown


def _advice(details: ErrorDetails) -> str:
    value, kind = details["input"], details["type"]
    if value is None:
        return "; give it a value or remove the line"
    if kind in {"string_type", "enum"} and isinstance(value, bool):
        return "; YAML reads a bare yes, no, on or off as a boolean: put the word in quotes"
    if kind == "string_type" and isinstance(value, int | float):
        return "; put it in quotes"
    return ""


def _choices(expected: str) -> str:
    """Pydantic's `'A', 'B' or 'C'` in our words."""
    names = re.findall(r"'([^']*)'", expected)
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"
