"""Every test that `docs/cases.md` names exists, and every case names one."""

import ast
import re

import pytest
from tools.sources import ROOT

PAGE = (ROOT / "docs" / "cases.md").read_text().partition("## Signs of life")[0]
CASES = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
NAMED = re.findall(r"`([^`]+\.py)::(\w+)`", PAGE)


def names_of_tests_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, functions)}


def test_every_case_is_shown_by_a_test() -> None:
    assert len(CASES) == 14
    assert [case for case in CASES if "::test_" not in case] == []


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_named_test_exists(path: str, name: str) -> None:
    assert name in names_of_tests_in(path)
