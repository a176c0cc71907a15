"""Files of requests: traces with timestamps, tables of lengths, prompts and conversations.

The format is told by the content. A name that ends in `.gz` is unpacked.

- CSV `TIMESTAMP,ContextTokens,GeneratedTokens` (Azure's inference traces; ISO times or seconds)
- CSV `prompt_tokens,output_tokens` (`input_tokens` is the same as `prompt_tokens`)
- JSON lines `{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}`
  (Mooncake's traces)
- JSON lines `{"prompt": "..."}` or `{"messages": [...]}`, with `"output_tokens": n` if wanted
"""

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.prompts import ChatPrompt, TextPrompt

_MOST_FAULTS = 10
_LARGEST_NUMBER = 1e15
# A packed file of a few MiB can unpack to more than memory holds.
_LARGEST_BYTES = 512 * 2**20
_MILLISECONDS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class Row:
    """One row; what the file does not say is None.

    Attributes:
        index: among the file's rows, from 0.
        at_s: since the file's first row.
        hash_ids: names of the prompt's 512-token blocks; equal names are equal tokens.
    """

    index: int | None = None
    at_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    hash_ids: tuple[int, ...] = ()
    prompt: TextPrompt | ChatPrompt | None = None


@dataclass(frozen=True, slots=True)
class RowFile:
    """The rows of one file, in order of time where they have times."""

    name: str
    rows: tuple[Row, ...]

    @property
    def has_times(self) -> bool:
        """Whether arrivals can follow the file."""
        return all(row.at_s is not None for row in self.rows)


def read_rows(path: Path) -> RowFile:
    """Read a file of any of the formats above.

    Raises:
        InvalidInputError: it cannot be read, or rows are faulty; the first faults are named.
    """
    lines = _read_text(path).splitlines()
    if not lines:
        raise _invalid(path, "is empty; expected CSV with a header, or one JSON object per line")
    if lines[0].lstrip().startswith("{"):
        numbered = enumerate(lines, start=1)
        rows = _parse_all(path, numbered, lambda line: _json_row(json.loads(line)))
    else:
        rows = _parse_all(path, _numbered_cells(path, lines), _csv_row)
    if not rows:
        raise _invalid(path, "has no rows; expected one per request")
    if len({(row.at_s is None, row.prompt is None) for row in rows}) > 1:
        raise _invalid(path, "mixes rows of different formats; split it")
    return RowFile(path.name, _from_first_time(rows))


def _read_text(path: Path) -> str:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            text = f"is larger than {_LARGEST_BYTES // 2**20} MiB unpacked; split it"
            raise _invalid(path, text)
        return content.decode()
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise _invalid(path, f"cannot be read ({error}); expected UTF-8 text or its .gz") from None


def _numbered_cells(path: Path, lines: list[str]) -> Iterator[tuple[int, dict[Any, Any]]]:
    reader = csv.DictReader(lines)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise _invalid(path, f"line {reader.line_num + 1} is no CSV ({error}); mend it") from None


def _parse_all(
    path: Path, numbered: Iterable[tuple[int, Any]], parse: Callable[[Any], Row]
) -> list[Row]:
    rows: list[Row] = []
    faults: list[Fault] = []
    for line_number, line in numbered:
        if not line:  # a blank line, as editors leave at the end
            continue
        try:
            rows.append(replace(parse(line), index=len(rows)))
        except (ValueError, KeyError, TypeError) as error:
            faults.append(Fault(f"line {line_number}", _reason(error)))
            if len(faults) == _MOST_FAULTS:
                break
    if faults:
        raise InvalidInputError(str(path), faults)
    return rows


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return (
            f"lacks {error.args[0]!r}; expected the columns TIMESTAMP, ContextTokens, "
            "GeneratedTokens or prompt_tokens, output_tokens, or JSON with prompt, messages or "
            "timestamp, input_length, output_length"
        )
    return f"{error}; mend the row or leave it out"


def _csv_row(cells: Mapping[str | None, str | None]) -> Row:
    if None in cells:  # where the reader puts what has no column
        raise ValueError("expected as many cells as the header has, got more")
    by_name = {(name or "").strip().lower(): (cell or "").strip() for name, cell in cells.items()}
    if "timestamp" in by_name:
        return Row(
            at_s=_seconds(by_name["timestamp"]),
            prompt_tokens=_count(by_name["contexttokens"], "ContextTokens", least=1),
            output_tokens=_count(by_name["generatedtokens"], "GeneratedTokens"),
        )
    prompt_column = "input_tokens" if "input_tokens" in by_name else "prompt_tokens"
    return Row(
        prompt_tokens=_count(by_name[prompt_column], prompt_column, least=1),
        output_tokens=_count(by_name["output_tokens"], "output_tokens"),
    )


def _json_row(fields: Any) -> Row:
    match fields:
        case {"messages": list(messages)}:
            if not messages or not all(isinstance(message, dict) for message in messages):
                raise ValueError('expected "messages" to be a list of objects, not empty')
            return Row(output_tokens=_output(fields), prompt=ChatPrompt(tuple(messages)))
        case {"prompt": str(text)}:
            if not text:
                raise ValueError('expected "prompt" to be a text, got an empty one')
            return Row(output_tokens=_output(fields), prompt=TextPrompt(text))
        case dict():
            return _mooncake_row(fields)
        case _:
            raise ValueError("expected a JSON object")


def _mooncake_row(fields: Mapping[str, Any]) -> Row:
    hash_ids = fields.get("hash_ids", [])
    if not isinstance(hash_ids, list) or not all(type(block) is int for block in hash_ids):
        raise ValueError('expected "hash_ids" to be a list of whole numbers')
    return Row(
        at_s=_number(fields["timestamp"], "timestamp") / _MILLISECONDS_PER_S,
        prompt_tokens=_count(fields["input_length"], "input_length", least=1),
        output_tokens=_count(fields["output_length"], "output_length"),
        hash_ids=tuple(hash_ids),
    )


def _output(fields: Mapping[str, Any]) -> int | None:
    given = fields.get("output_tokens")
    return None if given is None else _count(given, "output_tokens", least=1)


def _count(value: object, name: str, least: int = 0) -> int:
    number = _number(value, name)
    if number != int(number) or number < least:
        raise ValueError(f"{name}: expected a whole number from {least}, got {value!r}")
    return int(number)


def _number(value: object, name: str) -> float:
    number = _sane_number(value)
    if number is None:
        raise ValueError(f"{name}: expected a number, got {value!r}")
    return number


def _sane_number(value: object) -> float | None:
    """None for what is no number, is not finite, or is beyond all tokens and times."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if -_LARGEST_NUMBER < number < _LARGEST_NUMBER else None


def _seconds(text: str) -> float:
    """Seconds, or a date in ISO 8601; only differences between rows count."""
    seconds = _sane_number(text)
    if seconds is not None:
        return seconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"TIMESTAMP: expected seconds or a date like 2023-11-16 18:15:46.68, got {text!r}"
        ) from None
    return (moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo)).total_seconds()


def _from_first_time(rows: list[Row]) -> tuple[Row, ...]:
    if rows[0].at_s is None:
        return tuple(rows)
    ordered = sorted(rows, key=lambda row: row.at_s or 0.0)
    begin_s = ordered[0].at_s or 0.0
    return tuple(replace(row, at_s=(row.at_s or 0.0) - begin_s) for row in ordered)


def _invalid(path: Path, message: str) -> InvalidInputError:
    return InvalidInputError(str(path), [Fault("", message)])
