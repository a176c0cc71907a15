"""Frozen values to JSON and back without loss, by their declared types.

A dataclass becomes an object of its fields, with `kind`, its name, where the declared type leaves a
choice; an enum becomes its value, a tuple a list. JSON has no infinity and no not-a-number, so
these three floats are written as texts.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from math import isfinite
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_ValueT = TypeVar("_ValueT")
_KIND = "kind"
_NONE = type(None)
_UNIONS = (Union, type(int | str))
_NO_NUMBERS = ("nan", "inf", "-inf")


def to_json(value: object) -> Any:
    """Whatever `json.dumps` takes, from a frozen dataclass.

    Raises:
        TypeError: a field's declared type is none that can be read back.
    """
    annotation: Any = type(value)
    return _writer(annotation)(value)


def from_json(kind: type[_ValueT], document: object) -> _ValueT:
    """The value of type `kind` that `to_json` made this document of.

    Raises:
        ValueError: the document is not one of that type; says where, what was expected and got.
    """
    annotation: Any = kind
    return cast("_ValueT", _reader(annotation)(document, kind.__name__))


def _write_float(value: Any) -> Any:
    return float(value) if isfinite(value) else repr(float(value))


def _as_is(value: Any) -> Any:
    return value


@cache
def _writer(annotation: Any) -> Callable[[Any], Any]:
    """How to write a value declared so; made once per type."""
    if annotation is float:
        return _write_float
    if annotation in (int, str, bool, _NONE):
        return _as_is
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return lambda value: value.value
    if is_dataclass(_plain(annotation)):
        return _dataclass_writer(annotation)
    if get_origin(annotation) in _UNIONS:
        return _union_writer(get_args(annotation))
    if get_origin(annotation) is tuple:
        return _tuple_writer(get_args(annotation))
    raise TypeError(f"journal: expected a type that can be read back, got {annotation}")


def _dataclass_writer(annotation: Any) -> Callable[[Any], Any]:
    writers = [(name, _writer(kind)) for name, kind in _fields(annotation)]
    return lambda value: {name: write(getattr(value, name)) for name, write in writers}


def _union_writer(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    dataclasses = [member for member in members if is_dataclass(_plain(member))]

    def write(value: Any) -> Any:
        member = next(m for m in members if _is_of(value, m))
        written = _writer(member)(value)
        return {_KIND: _plain(member).__name__, **written} if len(dataclasses) > 1 else written

    return write


def _tuple_writer(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    if len(members) == 2 and members[1] is ...:
        every = _writer(members[0])
        return lambda value: [every(item) for item in value]
    writers = [_writer(member) for member in members]
    return lambda value: [write(item) for write, item in zip(writers, value, strict=True)]


@cache
def _reader(annotation: Any) -> Callable[[Any, str], Any]:
    """How to read a value declared so, at a path that errors name."""
    if annotation is float:
        return _read_float
    if annotation in (int, str, bool, _NONE):
        return _plain_reader(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum_reader(annotation)
    if is_dataclass(_plain(annotation)):
        return _dataclass_reader(annotation)
    if get_origin(annotation) in _UNIONS:
        return _union_reader(get_args(annotation))
    if get_origin(annotation) is tuple:
        return _tuple_reader(get_args(annotation))
    raise TypeError(f"journal: expected a type that can be read back, got {annotation}")


def _read_float(document: Any, path: str) -> float:
    if document in _NO_NUMBERS and isinstance(document, str):
        return float(document)
    if isinstance(document, bool) or not isinstance(document, int | float):
        raise ValueError(f"{path}: expected a number, got {document!r}")  # noqa: TRY004 # as said
    return float(document)


def _plain_reader(kind: Any) -> Callable[[Any, str], Any]:
    def read(document: Any, path: str) -> Any:
        if type(document) is not kind:
            raise ValueError(f"{path}: expected {kind.__name__}, got {document!r}")
        return document

    return read


def _enum_reader(kind: type[Enum]) -> Callable[[Any, str], Any]:
    def read(document: Any, path: str) -> Any:
        try:
            return kind(document)
        except ValueError as error:
            expected = ", ".join(str(member.value) for member in kind)
            raise ValueError(f"{path}: expected one of {expected}, got {document!r}") from error

    return read


def _dataclass_reader(annotation: Any) -> Callable[[Any, str], Any]:
    readers = [(name, _reader(kind)) for name, kind in _fields(annotation)]
    build, names = _plain(annotation), {name for name, _ in readers}

    def read(document: Any, path: str) -> Any:
        if not isinstance(document, Mapping) or set(document) - {_KIND} != names - {_KIND}:
            raise ValueError(f"{path}: expected the fields {sorted(names)}, got {document!r:.200}")
        return build(**{name: take(document[name], f"{path}.{name}") for name, take in readers})

    return read


def _union_reader(members: tuple[Any, ...]) -> Callable[[Any, str], Any]:
    dataclasses = {_plain(m).__name__: m for m in members if is_dataclass(_plain(m))}
    others = [m for m in members if m is not _NONE and not is_dataclass(_plain(m))]

    def read(document: Any, path: str) -> Any:
        if document is None and _NONE in members:
            return None
        if isinstance(document, Mapping) and dataclasses:
            only = next(iter(dataclasses)) if len(dataclasses) == 1 else document.get(_KIND)
            if only in dataclasses:
                return _reader(dataclasses[only])(document, path)
        if len(others) == 1:
            return _reader(others[0])(document, path)
        raise ValueError(f"{path}: expected one of {members}, got {document!r:.200}")

    return read


def _tuple_reader(members: tuple[Any, ...]) -> Callable[[Any, str], Any]:
    is_uniform = len(members) == 2 and members[1] is ...

    def read(document: Any, path: str) -> Any:
        if not isinstance(document, list) or not (is_uniform or len(document) == len(members)):
            raise ValueError(f"{path}: expected a list, got {document!r:.200}")
        kinds = members[:1] * len(document) if is_uniform else members
        return tuple(
            _reader(kind)(item, f"{path}[{index}]")
            for index, (kind, item) in enumerate(zip(kinds, document, strict=True))
        )

    return read


def _fields(annotation: Any) -> list[tuple[str, Any]]:
    """Names and types of the fields that make the value; derived ones are made anew."""
    plain = _plain(annotation)
    chosen = dict(zip(getattr(plain, "__parameters__", ()), get_args(annotation), strict=False))
    hints = get_type_hints(plain)
    return [
        (field.name, _filled(hints[field.name], chosen)) for field in fields(plain) if field.init
    ]


def _filled(annotation: Any, chosen: Mapping[Any, Any]) -> Any:
    """The annotation with a generic class's parameters replaced by what they stand for."""
    if annotation in chosen:
        return chosen[annotation]
    if get_origin(annotation) in _UNIONS:
        return Union[tuple(_filled(member, chosen) for member in get_args(annotation))]  # noqa: UP007 # made at run time
    return annotation


def _plain(annotation: Any) -> Any:
    """The class itself, without a generic's arguments."""
    return get_origin(annotation) if is_dataclass(get_origin(annotation)) else annotation


def _is_of(value: object, member: Any) -> bool:
    """Whether a value is of this member of a union; an int may stand for a float."""
    if member is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    plain = get_origin(member) or member
    return type(value) is plain or (isinstance(plain, type) and isinstance(value, plain))
