"""Whether an object still says what we said of it.

The API server keeps which fields are ours (`managedFields`), so an object has drifted if a field
that we set has another value, or if we own one that we set no more. What others add, and what the
server fills in, is none of our business.
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from pipelineserve_operator.cluster.access import FIELD_OWNER
from pipelineserve_operator.render import JsonObject
from pipelineserve_operator.render.quantities import amount

Fields: TypeAlias = Mapping[str, Any]
"""Fields as `managedFields` has them: `f:` a field, `k:` an element of a list by its keys."""

# The server writes these in its own spelling.
_QUANTITIES = frozenset({"requests", "limits"})
_QUANTITY = frozenset({"sizeLimit", "divisor"})
_NOT_APPLIED = frozenset({"apiVersion", "kind"})


def has_drifted(wanted: JsonObject, live: JsonObject) -> bool:
    """Whether applying `wanted` would change `live`."""
    owned = _owned(live)
    if owned is None:
        return True
    said = {key: value for key, value in wanted.items() if key not in _NOT_APPLIED}
    return _owns_more(owned, said) or not _says(live, said, owned)


def _owned(live: JsonObject) -> Fields | None:
    """The fields that we applied; None if there are none."""
    for entry in live["metadata"].get("managedFields", ()):
        is_ours = entry.get("manager") == FIELD_OWNER and entry.get("operation") == "Apply"
        if is_ours and not entry.get("subresource"):
            fields: Fields = entry.get("fieldsV1", {})
            return fields
    return None


def _owns_more(owned: Fields, wanted: Any) -> bool:
    """Whether we own a field that we do not set any more."""
    return any(_is_superfluous(key, inner, wanted) for key, inner in owned.items())


def _is_superfluous(key: str, inner: Fields, wanted: Any) -> bool:
    mark, _, name = key.partition(":")
    match mark:
        case "f":
            if not isinstance(wanted, Mapping) or name not in wanted:
                return True
            return _owns_more(inner, wanted[name])
        case "k":
            found = _element(wanted, json.loads(name))
            return found is None or _owns_more(inner, found)
        case "v":
            return not isinstance(wanted, Sequence) or json.loads(name) not in wanted
        case _:
            return False  # "." is the field itself, which the keys around it speak of


def _says(live: Any, wanted: Any, owned: Fields, name: str = "") -> bool:
    """Whether `live` has all of `wanted`."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        is_amounts = name in _QUANTITIES
        return all(
            _says_field(live, key, value, owned, is_amount=is_amounts or key in _QUANTITY)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(live, list):
        return _says_list(live, wanted, owned)
    return bool(live == wanted)


def _says_field(live: Fields, key: str, wanted: Any, owned: Fields, *, is_amount: bool) -> bool:
    if key not in live:
        return _is_empty(wanted)  # the server leaves out what is empty
    if is_amount and isinstance(wanted, str):
        return _number(live[key]) == _number(wanted)
    return _says(live[key], wanted, owned.get(f"f:{key}", {}), key)


def _says_list(live: list[Any], wanted: list[Any], owned: Fields) -> bool:
    by_key = {key: inner for key, inner in owned.items() if key.startswith("k:")}
    if not by_key:
        # A list that belongs to one owner as a whole.
        return len(live) == len(wanted) and all(
            _says(one, other, {}) for one, other in zip(live, wanted, strict=True)
        )
    return all(_says_element(live, element, by_key) for element in wanted)


def _says_element(live: list[Any], wanted: Any, by_key: Fields) -> bool:
    for key, inner in by_key.items():
        keys = json.loads(key.partition(":")[2])
        if _element([wanted], keys) is not None:
            found = _element(live, keys)
            return found is not None and _says(found, wanted, inner)
    return False  # we set it and own no such element: somebody took it out


def _element(elements: Any, keys: Mapping[str, Any]) -> Any:
    """The element of a list with these keys; a key that it leaves out has its default."""
    if not isinstance(elements, list):
        return None
    return next(
        (
            element
            for element in elements
            if isinstance(element, Mapping)
            and all(element.get(key, value) == value for key, value in keys.items())
        ),
        None,
    )


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | Mapping) and not value)


def _number(quantity: Any) -> Decimal | str:
    try:
        return amount(str(quantity))
    except (ValueError, KeyError):
        return str(quantity)  # compared as it is written
