"""Tables as an API server makes them of a kind's printer columns, as text for a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_GAP = "   "
_UNKNOWN = "<none>"


@dataclass(frozen=True, slots=True)
class Row:
    """One resource.

    Attributes:
        cells: texts, one for each column of the server.
    """

    namespace: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerTable:
    """What a server answers instead of objects.

    Attributes:
        columns: names in upper case, with whether each is shown only in the wide form.
        version: of the list, from which it can be watched; empty in an event.
    """

    columns: tuple[tuple[str, bool], ...]
    rows: tuple[Row, ...]
    version: str


def parse_table(document: dict[str, Any]) -> ServerTable:
    """Of `meta.k8s.io/v1` Table."""
    columns = tuple(
        (column["name"].upper(), column["priority"] > 0)
        for column in document.get("columnDefinitions") or []
    )
    rows = tuple(
        Row(
            row["object"]["metadata"].get("namespace", ""),
            tuple(_text(cell) for cell in row["cells"]),
        )
        for row in document.get("rows") or []
    )
    return ServerTable(columns, rows, document["metadata"].get("resourceVersion", ""))


class TableText:
    """Lines of a table whose later rows come one by one.

    Args:
        columns: of the server.
        is_wide: whether all of them are shown.
        with_namespace: whether a first column says each row's.
    """

    def __init__(
        self, columns: Sequence[tuple[str, bool]], *, is_wide: bool, with_namespace: bool
    ) -> None:
        self._shown = [
            index for index, (_, only_wide) in enumerate(columns) if is_wide or not only_wide
        ]
        self._names = [columns[index][0] for index in self._shown]
        self._with_namespace = with_namespace
        self._widths: list[int] = []

    def lines(self, rows: Sequence[Row]) -> list[str]:
        """These rows; the first call begins with the names, and sets the widths."""
        texts = [self._texts(row) for row in rows]
        if not self._widths:
            names = [*(["NAMESPACE"] if self._with_namespace else []), *self._names]
            texts.insert(0, names)
            self._widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        return [self._line(text) for text in texts]

    def _texts(self, row: Row) -> list[str]:
        first = [row.namespace] if self._with_namespace else []
        return [*first, *(row.cells[index] for index in self._shown)]

    def _line(self, texts: Sequence[str]) -> str:
        padded = (text.ljust(width) for text, width in zip(texts, self._widths, strict=True))
        return _GAP.join(padded).rstrip()


def _text(cell: object) -> str:
    return _UNKNOWN if cell is None or cell == "" else str(cell)
