"""A server's tables as text."""

from typing import Any

from pipelineserve_cli.get.tables import TableText, parse_table


def a_table(*rows: tuple[str, str, object]) -> dict[str, Any]:
    columns = [("Name", 0), ("Ready", 0), ("Reason", 1)]
    return {
        "metadata": {"resourceVersion": "7"},
        "columnDefinitions": [{"name": name, "priority": priority} for name, priority in columns],
        "rows": [
            {"cells": [name, *cells], "object": {"metadata": {"namespace": f"ns-{name}"}}}
            for name, *cells in rows
        ],
    }


def text_of(document: dict[str, Any], **options: bool) -> list[str]:
    table = parse_table(document)
    given = {"is_wide": False, "with_namespace": False, **options}
    return TableText(table.columns, **given).lines(table.rows)


def test_columns_are_as_wide_as_their_widest_text() -> None:
    document = a_table(("a", "True", None), ("longer", "False", "Broken"))
    assert text_of(document) == ["NAME     READY", "a        True", "longer   False"]


def test_the_wide_form_has_all_columns_and_what_is_not_known_is_said() -> None:
    document = a_table(("a", "", None), ("b", "False", "Broken"))
    assert text_of(document, is_wide=True) == [
        "NAME   READY    REASON",
        "a      <none>   <none>",
        "b      False    Broken",
    ]


def test_namespaces_come_first() -> None:
    assert text_of(a_table(("a", "x", 1)), with_namespace=True) == [
        "NAMESPACE   NAME   READY",
        "ns-a        a      x",
    ]


def test_later_rows_have_no_names_and_the_first_widths() -> None:
    table = parse_table(a_table(("a", "x", 1)))
    text = TableText(table.columns, is_wide=False, with_namespace=False)
    text.lines(table.rows)
    later = {**a_table(("abcdefgh", "y", 1)), "columnDefinitions": None}
    assert text.lines(parse_table(later).rows) == ["abcdefgh   y"]
    assert table.version == "7"


def test_a_table_without_rows_has_names_only() -> None:
    assert text_of(a_table()) == ["NAME   READY"]
