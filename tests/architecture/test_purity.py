"""Policies only compute; the scheduler has no clock of its own."""

import ast
from collections.abc import Iterator

import pytest
from tools.sources import Module, imported_names, product_modules

# Modules that compute and nothing else. Everything else needs a reason to enter this list.
COMPUTING_MODULES = frozenset(
    {
        *("abc", "bisect", "collections", "dataclasses", "enum", "fractions", "functools"),
        *("heapq", "itertools", "math", "operator", "statistics", "typing"),
    }
)
WORLD_MODULES = frozenset(
    {
        *("asyncio", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "random"),
        *("secrets", "selectors", "signal", "socket", "subprocess", "sys", "threading", "time"),
        *("uuid", "weakref", "numpy", "torch", "pydantic", "yaml"),
    }
)
WORLD_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__", "setattr"})


def modules_under(package: str) -> list[Module]:
    return [module for module in product_modules() if f"{module.name}.".startswith(f"{package}.")]


def top_level_imports(tree: ast.AST) -> set[str]:
    return {name.partition(".")[0] for name in imported_names(tree)}


def is_frozen_dataclass(decorator: ast.expr) -> bool:
    if not isinstance(decorator, ast.Call):
        return False
    keywords = {keyword.arg: keyword.value for keyword in decorator.keywords}
    return isinstance(frozen := keywords.get("frozen"), ast.Constant) and frozen.value is True


def is_dataclass(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).partition("(")[0] in {"dataclass", "dataclasses.dataclass"}


def impurities(tree: ast.AST) -> Iterator[str]:
    for name in top_level_imports(tree) - COMPUTING_MODULES - {"pipelineserve"}:
        yield f"imports {name}"
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in WORLD_CALLS:
                yield f"line {node.lineno} calls {name}"
            case ast.Attribute(ctx=ast.Store()):
                yield f"line {node.lineno} sets .{node.attr}"
            case ast.Global() | ast.Nonlocal():
                yield f"line {node.lineno} rebinds {', '.join(node.names)} from outside"
            case ast.ClassDef(decorator_list=decorators):
                for decorator in filter(is_dataclass, decorators):
                    if not is_frozen_dataclass(decorator):
                        yield f"line {node.lineno}: {node.name} is not frozen"
            case _:
                pass  # every other node only computes


@pytest.mark.parametrize(
    "module", modules_under("pipelineserve.policy"), ids=lambda module: module.name
)
def test_policy_module_only_computes(module: Module) -> None:
    assert list(impurities(module.tree)) == []


@pytest.mark.parametrize(
    "module", modules_under("pipelineserve.scheduler"), ids=lambda module: module.name
)
def test_scheduler_module_reaches_no_clock_thread_or_file(module: Module) -> None:
    assert top_level_imports(module.tree) & WORLD_MODULES == set()


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "def f():\n    from random import choice",
        "import numpy.linalg",
        "print(1)",
        "text = open('file').read()",
        "def f(view):\n    view.tokens = 1",
        "def f(view):\n    view.tokens += 1",
        "def f():\n    global total",
        "@dataclass\nclass View: ...",
        "@dataclass(slots=True)\nclass View: ...",
        "@dataclasses.dataclass(frozen=False)\nclass View: ...",
    ],
)
def test_finds_what_is_more_than_computing(source: str) -> None:
    assert list(impurities(ast.parse(source))) != []


@pytest.mark.parametrize(
    "source",
    [
        "from collections.abc import Sequence",
        "from pipelineserve.units import Seconds",
        "@dataclass(frozen=True, slots=True)\nclass View:\n    tokens: int = 0",
        "def f(values):\n    total = 0\n    total += sum(values)\n    return total",
    ],
)
def test_lets_computing_pass(source: str) -> None:
    assert list(impurities(ast.parse(source))) == []
