"""Generated parts of pages say what the code says, and links between pages lead somewhere."""

import re
from pathlib import Path

import pytest
from tools import generate, sizes
from tools.sources import ROOT, product_modules

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def relative_links(text: str) -> list[str]:
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", text)
    return [target for target in targets if "://" not in target and "mailto:" not in target]


@pytest.mark.parametrize("name", generate.GENERATED)
def test_generated_file_is_up_to_date(name: str) -> None:
    page = (ROOT / name).read_text()
    assert generate.GENERATED[name](page) == page


def test_every_module_says_its_duty_in_one_line() -> None:
    assert [module.name for module in product_modules() if not module.duty] == []


def test_duties_fit_a_table() -> None:
    assert [module.name for module in product_modules() if "|" in module.duty] == []


def test_replaces_only_what_stands_between_the_markers() -> None:
    page = "before\n<!-- generated: x -->\nold\n<!-- end: x -->\nafter\n"
    new = "before\n<!-- generated: x -->\n\nnew\n\n<!-- end: x -->\nafter\n"
    assert generate.with_part(page, "x", "new") == new
    assert generate.with_part(new, "x", "new") == new


@pytest.mark.parametrize("page", ["", "<!-- generated: x -->\n", "<!-- end: x -->\n"])
def test_names_the_markers_when_a_page_lacks_them(page: str) -> None:
    with pytest.raises(ValueError, match=r"<!-- generated: x -->\n<!-- end: x -->"):
        generate.with_part(page, "x", "new")


def test_check_reports_a_stale_file_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("old\n")
    monkeypatch.setattr(generate, "GENERATED", {str(page): lambda _: "new\n"})
    assert generate.main(["--check"]) == 1
    assert page.read_text() == "old\n"
    assert "make generate" in capsys.readouterr().out
    assert generate.main([]) == 0
    assert page.read_text() == "new\n"
    assert generate.main(["--check"]) == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = relative_links(page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_quantiles_of_lengths_are_lengths_that_occur() -> None:
    ordered = [sizes.Size(length, "f") for length in (1, 2, 3, 4, 10)]
    assert [sizes.quantile(ordered, share) for share in (0.0, 0.5, 0.9, 1.0)] == [1, 3, 10, 10]


def test_report_names_what_is_longer_than_the_line() -> None:
    lines = sizes.report("files", [sizes.Size(10, "long"), sizes.Size(9, "short")], long_lines=9)
    assert lines == ["files: 2, median 9, p90 10, largest 10 (long)", "     10 long"]
