"""The acceptance table for a terminal."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from pipelineserve_simulator.reproduce.findings import RowResult, Verdict

_COLOURS = {Verdict.FITS: "green", Verdict.MISSES: "red", Verdict.REPORTED: "dim"}


def acceptance_table(results: Sequence[RowResult]) -> Table:
    """One line for each finding, under the row that it belongs to."""
    table = Table("row", "", "paper", "twin", "accepted", "verdict", box=None, pad_edge=False)
    for result in results:
        for index, finding in enumerate(result.findings):
            colour = _COLOURS[finding.verdict]
            table.add_row(
                escape(result.row) if index == 0 else "",
                escape(finding.what),
                escape(finding.paper),
                finding.unit.show(finding.ours),
                "" if finding.accept is None else escape(finding.accept.text),
                f"[{colour}]{finding.verdict.value}[/{colour}]",
            )
    return table
