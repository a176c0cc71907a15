"""Reports how long the files and functions are; a report to think about, not a gate."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
LONG_FILE_LINES = 400
LONG_FUNCTION_LINES = 50


@dataclass(frozen=True, order=True)
class Size:
    """How many lines something has."""

    num_lines: int
    name: str


def file_size(path: Path) -> Size:
    """The length of one file."""
    return Size(len(path.read_text().splitlines()), str(path.relative_to(ROOT)))


def function_sizes(path: Path) -> list[Size]:
    """The length of each function in one file, without decorators; nested ones count twice."""
    sizes = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            sizes.append(Size(num_lines, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"))
    return sizes


def quantile(ordered: Sequence[Size], share_ratio: float) -> int:
    """The smallest length that at least this share does not exceed; 0 of nothing."""
    if not ordered:
        return 0
    rank = max(0, -(-len(ordered) * share_ratio // 1) - 1)
    return ordered[int(rank)].num_lines


def report(title: str, sizes: Sequence[Size], long_lines: int) -> list[str]:
    """One line of figures, then the names of those longer than `long_lines`."""
    ordered = sorted(sizes)
    largest = ordered[-1] if ordered else Size(0, "none")
    figures = (
        f"{title}: {len(ordered)}, median {quantile(ordered, 0.5)}, p90 {quantile(ordered, 0.9)}, "
        f"largest {largest.num_lines} ({largest.name})"
    )
    long_ones = [size for size in reversed(ordered) if size.num_lines > long_lines]
    return [figures, *(f"  {size.num_lines:5} {size.name}" for size in long_ones)]


def main() -> None:
    """Print the report, the product first, then the tests."""
    for title, folders in (("product", FOLDERS[:-1]), ("tests", FOLDERS[-1:])):
        paths = source_files(*folders)
        files = [file_size(path) for path in paths]
        functions = [size for path in paths for size in function_sizes(path)]
        print("\n".join(report(f"{title} files", files, LONG_FILE_LINES)))
        print("\n".join(report(f"{title} functions", functions, LONG_FUNCTION_LINES)))


if __name__ == "__main__":
    main()
