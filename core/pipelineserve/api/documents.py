"""YAML text to JSON documents, without surprises.

Stricter than YAML: no aliases (a small text could stand for a huge document), no key twice, no tags
but the plain ones, a bound on size and depth. Bare words are read as kubectl reads them, so `Off`
without quotes is a boolean here too; a bare date stays a text.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Never, Protocol

import yaml
from pydantic import JsonValue

from pipelineserve.api.faults import described
from pipelineserve.api.paths import join
from pipelineserve.errors import Fault

MAX_TEXT_BYTES = 262_144
MAX_DEPTH = 32

_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE|yes|Yes|YES|on|On|ON")
_FALSE = re.compile(r"false|False|FALSE|no|No|NO|off|Off|OFF")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_MAX_INTEGER_CHARACTERS = 18  # fits 64 bits, as every number in Kubernetes' JSON
_TEXT_TAG = "tag:yaml.org,2002:str"
_PLAIN_TAGS = {"!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text; `faults` are what the text itself has wrong in it."""

    value: JsonValue
    place: str
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class ReadText:
    """Every document up to the first place that is not YAML, which `faults` then names."""

    documents: tuple[Document, ...]
    faults: tuple[Fault, ...]


class _UnreadableError(Exception):
    """Reading cannot go on; holds the fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def read_documents(text: str) -> ReadText:
    """All documents of `text` that hold something; never raises for what the text holds."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_TEXT_BYTES:
        message = f"expected at most {MAX_TEXT_BYTES} bytes, got {size}; split the file"
        return ReadText((), (Fault("", message),))
    documents: list[Document] = []
    try:
        for document in _Builder(text).documents():
            documents.append(document)  # noqa: PERF402 - those before an error are kept
    except _UnreadableError as error:
        return ReadText(tuple(documents), (error.fault,))
    # The parser lets ValueError and OverflowError out for escapes beyond Unicode.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        return ReadText(tuple(documents), (_syntax_fault(error),))
    return ReadText(tuple(documents), ())


def _syntax_fault(error: Exception) -> Fault:
    problem = "expected YAML, got text that is not"
    advice = "look at the indentation, quotes and brackets there"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        reason = str(error).partition("\n")[0]
        return Fault("", f"{problem} ({reason}); remove the characters that it names")
    return Fault(_place(error.problem_mark), f"{problem} ({error.problem}); {advice}")


class _Mark(Protocol):
    """A position in the text, counted from 0."""

    line: int
    column: int


def _place(mark: _Mark | None) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else "an unknown line"


class _Builder:
    """Builds documents from the parser's events, one pass, depth bounded."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)
        self._faults: list[Fault] = []

    def documents(self) -> Iterator[Document]:
        for event in self._events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue  # start and end of the stream, end of a document
            self._faults = []
            content = next(self._events)
            value = self._value(content, "", 0)
            if value is not None or self._faults:
                yield Document(value, _place(content.start_mark), tuple(self._faults))

    def _value(self, event: yaml.Event, path: str, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            self._stop(event, f"expected at most {MAX_DEPTH} levels; flatten the document")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.AliasEvent):
            self._report(event, path, f"aliases (*{event.anchor}) are refused; write the value out")
            return None
        if isinstance(event, yaml.MappingStartEvent):
            self._refuse_tag(event, path, event.tag)
            return self._mapping(path, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            self._refuse_tag(event, path, event.tag)
            return self._sequence(path, depth)
        return self._stop(event, f"expected a value, got {type(event).__name__}; give one")

    def _mapping(self, path: str, depth: int) -> JsonValue:
        mapping: dict[str, JsonValue] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, path, depth)
            value = self._value(next(self._events), join(path, key), depth + 1)
            if key in mapping:
                self._report(event, join(path, key), "given twice; keep one of the two")
            mapping.setdefault(key, value)
        return mapping

    def _key(self, event: yaml.Event, path: str, depth: int) -> str:
        key = self._value(event, path, depth + 1)
        if isinstance(key, str):
            return key
        self._report(event, path, f"expected a text as key, got {described(key)}; put it in quotes")
        return ascii(key)

    def _sequence(self, path: str, depth: int) -> JsonValue:
        items: list[JsonValue] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, join(path, len(items)), depth + 1))
        return items

    def _scalar(self, event: yaml.ScalarEvent, path: str) -> JsonValue:
        if event.tag != _TEXT_TAG:
            self._refuse_tag(event, path, event.tag)
        is_bare = event.style is None and event.tag is None
        return self._bare_word(event, path) if is_bare else self._text(event, path)

    def _text(self, event: yaml.ScalarEvent, path: str) -> str:
        # JSON's escapes write one character beyond 16 bits as two halves; join them.
        try:
            return event.value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._report(event, path, "expected text, got half a surrogate pair; remove the escape")
            return ""

    def _bare_word(self, event: yaml.ScalarEvent, path: str) -> JsonValue:
        word = event.value
        if _NULL.fullmatch(word):
            return None
        if _TRUE.fullmatch(word) or _FALSE.fullmatch(word):
            return _TRUE.fullmatch(word) is not None
        if _INTEGER.fullmatch(word) and len(word) <= _MAX_INTEGER_CHARACTERS:
            return int(word)
        if _NUMBER.fullmatch(word) and math.isfinite(float(word)):
            return float(word)
        if _INTEGER.fullmatch(word) or _NUMBER.fullmatch(word):
            self._report(
                event, path, "expected a number of 64 bits; put it in quotes if it is text"
            )
        return self._text(event, path)

    def _refuse_tag(self, event: yaml.Event, path: str, tag: str | None) -> None:
        if tag is not None and tag not in _PLAIN_TAGS:
            self._report(event, path, f"the tag {tag[:60]!r} is refused; write a plain value")

    def _report(self, event: yaml.Event, path: str, message: str) -> None:
        self._faults.append(Fault(path, f"{message} ({_place(event.start_mark)})"))

    def _stop(self, event: yaml.Event, message: str) -> Never:
        raise _UnreadableError(Fault(_place(event.start_mark), message))
