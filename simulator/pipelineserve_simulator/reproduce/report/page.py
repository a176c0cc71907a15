"""The report as one HTML text without anything from outside."""

from collections import Counter
from collections.abc import Sequence
from html import escape

from pipelineserve_simulator.reproduce.findings import Finding, RowResult, Verdict
from pipelineserve_simulator.reproduce.report.acceptance import ReportFacts
from pipelineserve_simulator.reproduce.report.plots import draw

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --faint: #6a727c; --line: #d8dce1;
  --ground: #ffffff; --fits: #1f7a43; --misses: #b3421b; --reported: #5b6570; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --faint: #98a1ac; --line: #363d45;
  --ground: #15181c; --fits: #5fc98a; --misses: #f0895f; --reported: #a5aeb8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  margin: 0 auto; max-width: 76rem; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; }
p, figcaption { max-width: 60rem; } .faint { color: var(--faint); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; width: 100%; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } th { color: var(--faint); font-weight: 600; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.fits { color: var(--fits); } .misses { color: var(--misses); font-weight: 600; }
.reported { color: var(--reported); } a { color: inherit; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; } .charts svg { width: 100%; height: auto; }
figure { margin: 0; flex: 1 1 26rem; max-width: 36rem; }
details summary { cursor: pointer; color: var(--faint); }
"""
_COLUMNS = ("", "paper", "twin", "95 % or seeds", "accepted", "verdict", "of what")


def report_page(results: Sequence[RowResult], facts: ReportFacts) -> str:
    """The whole file; the same results give the same text."""
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>The published results on the twin</title><style>{_STYLE}</style></head><body>",
            "<h1>The published results on the twin</h1>",
            _intro(facts),
            _tally(results),
            _acceptance(results),
            *(_section(result) for result in results),
            "</body></html>\n",
        )
    )


def _tally(results: Sequence[RowResult]) -> str:
    verdicts = Counter(finding.verdict for result in results for finding in result.findings)
    return (
        f"<p><b>{verdicts[Verdict.FITS]} lines fit, {verdicts[Verdict.MISSES]} miss,</b> "
        f"{verdicts[Verdict.REPORTED]} are reported without acceptance.</p>"
    )


def _intro(facts: ReportFacts) -> str:
    effort = facts.effort
    seeds = ", ".join(map(str, effort.seeds))
    traced = f" Rows of {escape(facts.trace)} beside the fits to them." if facts.trace else ""
    return (
        '<p class="faint">Paper: Hwang &amp; Ahn, "Revisiting Pipeline Parallelism for LLM '
        'Serving", OSDI 2026. Machine: four A100-PCIe-40GB, one profile for each model, nothing '
        "fitted to a figure. Published systems: stages in lock step, decodes bound to slots, first "
        "come first served, admission that knows output lengths, with the profile's noise. "
        f"Effort: {effort.name}, seeds {seeds}.{traced} Code {facts.code[:12]}.</p>"
    )


def _acceptance(results: Sequence[RowResult]) -> str:
    rows = []
    for result in results:
        head = (
            f'<a href="#row-{escape(result.row)}">{escape(result.row)}</a> {escape(result.title)}'
        )
        rows.append(f'<tr><th colspan="{len(_COLUMNS)}">{head}</th></tr>')
        rows += [_line(finding) for finding in result.findings]
    return _table(rows)


def _section(result: RowResult) -> str:
    row, verdict = escape(result.row), result.verdict.value
    mark = f'<span class="{verdict}">{verdict}</span>'
    parts = [f'<h2 id="row-{row}">{row} · {escape(result.title)} {mark}</h2>']
    if result.explanation:
        parts.append(f"<p>{escape(result.explanation)}</p>")
    if result.charts:
        drawn = "".join(f"<figure>{draw(chart)}</figure>" for chart in result.charts)
        parts.append(f'<div class="charts">{drawn}</div>')
    if result.supports:
        lines = _table([_line(finding) for finding in result.supports])
        num = len(result.supports)
        parts.append(f"<details><summary>{num} lines behind it</summary>{lines}</details>")
    return "\n".join(parts)


def _table(rows: Sequence[str]) -> str:
    head = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _line(finding: Finding) -> str:
    verdict, unit, interval = finding.verdict.value, finding.unit, finding.interval
    spread = "" if interval is None else " to ".join(unit.show(end) for end in interval)
    accepted = "" if finding.accept is None else finding.accept.text
    numbers = (finding.paper, unit.show(finding.ours), spread, accepted)
    cells = "".join(f'<td class="number">{escape(number)}</td>' for number in numbers)
    return (
        f"<tr><td>{escape(finding.what)}</td>{cells}"
        f'<td class="{verdict}">{verdict}</td><td class="faint">{escape(finding.basis)}</td></tr>'
    )
