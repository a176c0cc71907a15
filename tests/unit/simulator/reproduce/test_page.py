"""The report needs nothing from outside, and holds whatever it is given."""

import json
import re
from html.parser import HTMLParser

from pipelineserve_simulator.reproduce.charts import Chart, ChartKind, Series
from pipelineserve_simulator.reproduce.effort import QUICK
from pipelineserve_simulator.reproduce.experiments import EXPERIMENTS
from pipelineserve_simulator.reproduce.findings import (
    Finding,
    RowResult,
    Unit,
    within_ratio,
)
from pipelineserve_simulator.reproduce.forecast import stand_in
from pipelineserve_simulator.reproduce.report.acceptance import ReportFacts, acceptance_as_json
from pipelineserve_simulator.reproduce.report.page import report_page
from pipelineserve_simulator.reproduce.report.plots import draw
from pipelineserve_simulator.reproduce.study import Study

FACTS = ReportFacts(QUICK, "c0de" * 16, "")
BARS = Chart(
    "Bars",
    ChartKind.BARS,
    "",
    "requests per second",
    (
        Series("paper", (0.0, 1.0), (3.5, 8.3)),
        Series("twin", (0.0, 1.0), (3.6, 8.1), (3.0, 8.2), (4.0, 9.0)),
    ),
    ticks=("TP", "PP"),
)


class Outline(HTMLParser):
    """Tags that are open, and addresses that are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        if tag not in {"meta", "path", "use", "rect", "br"}:
            self.open.append(tag)
        self.addresses += [
            value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}
        ]

    def handle_endtag(self, tag: str) -> None:
        """See `HTMLParser`."""
        if self.open and self.open[-1] == tag:
            self.open.pop()


def all_results() -> list[RowResult]:
    return [experiment.conclude(Study(QUICK, stand_in)) for experiment in EXPERIMENTS]


def test_every_row_can_be_written_as_strict_json() -> None:
    table = json.dumps(acceptance_as_json(all_results(), FACTS), allow_nan=False)
    assert len(json.loads(table)["rows"]) == len(EXPERIMENTS)


def test_nothing_is_loaded_from_outside() -> None:
    page = report_page(all_results(), FACTS)
    outline = Outline()
    outline.feed(page)
    assert all(address.startswith("#") for address in outline.addresses)
    assert "<script" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert outline.open == []


def test_the_same_results_give_the_same_bytes() -> None:
    assert draw(BARS) == draw(BARS)


def test_drawings_take_the_colour_of_the_page() -> None:
    svg = draw(BARS)
    assert svg.startswith("<svg")
    assert "currentColor" in svg
    assert "#0a0b0c" not in svg
    assert ">requests per second<" in svg.replace("\n", "")


def test_text_from_results_is_escaped() -> None:
    line = Finding("a < b & c", "<1>", 2.0, Unit.RATIO, within_ratio(1.0, 0.1))
    page = report_page([RowResult("x", "<b>", (line,), "because 1 < 2")], FACTS)
    assert "a &lt; b &amp; c" in page
    assert "because 1 &lt; 2" in page
    assert "<b></a>" not in page


def test_the_table_comes_first_and_counts_its_verdicts() -> None:
    fits = Finding("good", "1", 1.0, Unit.RATIO, within_ratio(1.0, 0.1))
    misses = Finding("bad", "1", 2.0, Unit.RATIO, within_ratio(1.0, 0.1), (1.9, 2.1), "2 seeds")
    told = Finding("told", "", 2.0, Unit.RATIO)
    result = RowResult("7", "title", (fits, misses, told), "why", charts=(BARS,))
    page = report_page([result], FACTS)
    assert "1 lines fit, 1 miss" in page
    assert page.index("<table") < page.index("<svg")
    assert "1.90 x to 2.10 x" in page
    rows = acceptance_as_json([result], FACTS)["rows"]
    assert [line["verdict"] for line in rows[0]["lines"]] == ["fits", "misses", "reported"]
