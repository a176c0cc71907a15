"""Names say what a thing is; some words say nothing."""

import ast
import re
from collections.abc import Iterator

import pytest
from tools.sources import ROOT, source_files

FOLDERS = (
    "core",
    "engine",
    "controller",
    "operator",
    "simulator",
    "cli",
    "bench",
    "tools",
    "tests",
)
EMPTY_WORDS = frozenset(
    {
        *("manager", "managers", "helper", "helpers", "util", "utils", "misc", "common"),
        *("tmp", "cfg", "bs", "mb"),
    }
)
# pytest decides what its fixtures are called, vLLM what its scheduler has.
FOREIGN_NAMES = frozenset({"tmp_path", "tmp_path_factory", "kv_cache_manager"})


def words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def chosen_names(tree: ast.AST) -> Iterator[str]:
    """The names that a file gives; those that it merely uses are someone else's."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.alias(asname=str(name)):
                yield name
            case _:
                pass  # every other node gives no name


def empty_names(tree: ast.AST) -> set[str]:
    names = set(chosen_names(tree)) - FOREIGN_NAMES
    # A test's name is a sentence, in which every word of the language has its place.
    names = {name for name in names if not name.startswith("test_")}
    return {name for name in names if EMPTY_WORDS.intersection(words(name))}


def test_no_name_holds_a_word_that_says_nothing() -> None:
    found = {}
    for path in source_files(*FOLDERS):
        names = empty_names(ast.parse(path.read_text()))
        if names or EMPTY_WORDS.intersection(words(path.stem)):
            found[str(path.relative_to(ROOT))] = names
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "class BlockManager: ...",
        "def parse_helper(): ...",
        "tmp = 1",
        "self.cfg = 1",
        "def f(mb_tokens): ...",
        "import numpy as np_utils",
        "async def common(): ...",
        "class KVUtil: ...",
    ],
)
def test_finds_an_empty_word_wherever_a_name_is_given(source: str) -> None:
    assert empty_names(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    ["contextlib.contextmanager(f)", "def f(tmp_path): ...", "commonality = 1", "class Mbox: ..."],
)
def test_leaves_foreign_and_longer_words_alone(source: str) -> None:
    assert not empty_names(ast.parse(source))
