"""Writes every generated file, or with `--check` says which ones are out of date.

A generated part stands between two markers in a page that is otherwise written by hand, so that a
fact which the code states is never typed a second time. Stubs of the gRPC contracts are generated
whole.
"""

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tools.chart import PATH as CHART_CRD
from tools.chart import crd_template
from tools.crd import NAME as CRD_NAME
from tools.crd import crd_text
from tools.sources import ROOT, modules_of, package_folders
from tools.stubs import stub_names, stub_text


def module_tables() -> str:
    """A table per package: each module and the first line of its docstring."""
    parts = []
    for folder in package_folders():
        parts.append(f"### `{folder.relative_to(ROOT)}`\n\n| module | duty |\n|---|---|")
        rows = (f"| `{module.name}` | {module.duty} |" for module in modules_of(folder))
        parts[-1] = "\n".join((parts[-1], *rows))
    return "\n\n".join(parts)


def with_part(page: str, part_name: str, content: str) -> str:
    """`page` with the text between the markers of `part_name` replaced.

    Raises:
        ValueError: the page lacks one of the two markers.
    """
    start, end = f"<!-- generated: {part_name} -->\n", f"<!-- end: {part_name} -->\n"
    before, start_found, rest = page.partition(start)
    _, end_found, after = rest.partition(end)
    if not (start_found and end_found):
        message = (
            f"expected the two lines\n{start}{end}in this order; put them where the part belongs"
        )
        raise ValueError(message)
    return f"{before}{start}\n{content}\n\n{end}{after}"


def architecture_page(old: str) -> str:
    """docs/architecture.md with today's modules."""
    return with_part(old, "modules", module_tables())


def _stub(name: str, old: str) -> str:
    del old
    return stub_text(name)


def _crd(old: str) -> str:
    del old
    return crd_text()


def _chart_crd(old: str) -> str:
    del old
    return crd_template()


# Each generated file and what makes its new text from its old one.
GENERATED: Mapping[str, Callable[[str], str]] = {
    "docs/architecture.md": architecture_page,
    f"crds/{CRD_NAME}.yaml": _crd,
    CHART_CRD: _chart_crd,
    **{name: partial(_stub, name) for name in stub_names()},
}


def _text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def stale_part(path: Path, new: str) -> str:
    """The difference between the file and what it should say, empty when there is none."""
    old = _text_of(path)
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), "committed", "generated", n=0, lineterm=""
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; with `--check` only compare, 1 when one is out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    is_check = parser.parse_args(arguments).check
    num_stale = 0
    for name, make in GENERATED.items():
        path = ROOT / name
        new = make(_text_of(path))
        difference = stale_part(path, new)
        if not difference:
            continue
        num_stale += 1
        if is_check:
            print(f"{name} is out of date; run `make generate` and commit it:\n{difference}")
        else:
            path.write_text(new)
            print(f"{name} written")
    return 1 if is_check and num_stale else 0


if __name__ == "__main__":
    sys.exit(main())
