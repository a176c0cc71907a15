"""Fits of the simulator's workloads to public traces, and how well they fit.

    python -m bench.workload_fits FOLDER [--write]

FOLDER holds the files named in `SOURCES` below, from the data sets that the fits cite. Printed are
mean, P50, P90 and P99 of the rows and of 200,000 pairs drawn from the fit, both correlations of the
rows and, exactly, of the fit, and for traces the arrivals: rate, variation of the gaps, and index
of dispersion (variance ÷ mean of the number of arrivals in 1 s and in 10 s; 1 for Poisson).
`--write` makes the package's `fits.yaml` anew before; without it the shipped one is compared.

The fit: each length's inverse distribution function as straight lines between a few quantiles, put
where the lines are furthest from the rows, with P50, P90 and P99 always among them; and a table
that counts which eighths of the ranks come together, tilted so that both correlations, of the
lengths and of their logarithms, are those of the rows.
"""

import argparse
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from statistics import fmean, pstdev, variance
from typing import Any

import yaml
from bench.joint_fits import (
    Table,
    correlations_of,
    curve_of,
    exact_correlations,
    joint_table,
    tilted,
    with_mean,
)

from pipelineserve.load.row_files import Row, read_rows
from pipelineserve.load.summaries import percentile
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.workloads import fits
from pipelineserve_simulator.workloads.curves import QuantileCurve
from pipelineserve_simulator.workloads.fits import FitName, fit
from pipelineserve_simulator.workloads.lengths import FittedLengths
from pipelineserve_simulator.workloads.registry import CNN_LENGTHS, REPLAY_WINDOW_ROWS

NUM_DRAWN = 200_000
AZURE = "Patel et al., Splitwise, ISCA 2024; Azure/AzurePublicDataset, CC-BY 4.0"
SHAREGPT = "ShareGPT_V3, token counts only, counted with the Qwen vocabulary"


@dataclass(frozen=True)
class Rates:
    """The rate in bins of so many seconds."""

    bin_s: float


@dataclass(frozen=True)
class Gaps:
    """The distribution of the gaps."""


@dataclass(frozen=True)
class Source:
    """Which rows of which file.

    Attributes:
        arrivals: what is kept of them.
    """

    name: FitName
    file: str
    origin: str
    citation: str
    end_row: int | None = None
    arrivals: Rates | Gaps | None = None
    first_row: int = 0


CONVERSATION = "AzureLLMInferenceTrace_conv_2023.csv.gz"


def window(name: FitName, window_index: int) -> Source:
    first_row, end_row = REPLAY_WINDOW_ROWS[window_index]
    origin = f"rows {first_row:,} to {end_row - 1:,}, 15 min, of Azure's conversation trace of 2023"
    return Source(name, CONVERSATION, origin, AZURE, end_row, Rates(30.0), first_row)


SOURCES = (
    Source(FitName.AZURE_CONVERSATION, CONVERSATION,
           "all 19,366 rows of Azure's conversation trace of 2023", AZURE),
    Source(FitName.AZURE_CONVERSATION_FIRST_400, CONVERSATION,
           "the first 400 rows of Azure's conversation trace of 2023", AZURE, 400),
    Source(FitName.AZURE_CONVERSATION_FIRST_15_MIN, CONVERSATION,
           "the first 15 min (4,424 rows) of Azure's conversation trace of 2023", AZURE, 4424,
           Rates(30.0)),
    window(FitName.AZURE_CONVERSATION_WINDOW_2, 1),
    window(FitName.AZURE_CONVERSATION_WINDOW_3, 2),
    window(FitName.AZURE_CONVERSATION_WINDOW_4, 3),
    window(FitName.AZURE_CONVERSATION_WINDOW_5, 4),
    Source(FitName.AZURE_CODE, "AzureLLMInferenceTrace_code_2023.csv.gz",
           "all 8,819 rows of Azure's code trace of 2023", AZURE, None, Gaps()),
    Source(FitName.SHAREGPT, "sharegpt_qwen_lengths.csv.gz",
           "15,460 first turns of ShareGPT", SHAREGPT),
)  # fmt: skip


def rows_of(source: Source, folder: Path) -> list[Row]:
    return list(read_rows(folder / source.file).rows[source.first_row : source.end_row])


def lengths_of(rows: Iterable[Row]) -> tuple[list[int], list[int]]:
    rows = list(rows)
    return [row.prompt_tokens or 0 for row in rows], [row.output_tokens or 0 for row in rows]


def times_of(rows: Sequence[Row]) -> list[float]:
    begin_s = rows[0].at_s or 0.0
    return [(row.at_s or 0.0) - begin_s for row in rows]


def rates_of(rows: Sequence[Row], bin_s: float) -> dict[str, Any]:
    times_s = times_of(rows)
    num_bins = int(times_s[-1] // bin_s) + 1
    counts = [0] * num_bins
    for at_s in times_s:
        counts[int(at_s // bin_s)] += 1
    return {"bin_s": bin_s, "per_s": [round(count / bin_s, 3) for count in counts]}


def gaps_of(rows: Sequence[Row]) -> list[float]:
    return [(later.at_s or 0.0) - (earlier.at_s or 0.0) for earlier, later in pairwise(rows)]


def knots_of(curve: QuantileCurve) -> dict[str, list[float]]:
    return {"ranks": list(curve.ranks), "values": list(curve.values)}


def moved_share(before: Table, after: Table) -> float:
    pairs = zip(chain.from_iterable(before), chain.from_iterable(after), strict=True)
    return sum(abs(one - other) for one, other in pairs) / 2


def gap_curve_of(gaps_s: Sequence[float]) -> QuantileCurve:
    """In proportion to the knots, so that the rate is kept: few gaps make up most of the time."""
    return with_mean(curve_of(gaps_s, 6, 10_000), fmean(gaps_s), 5)


def document_of(source: Source, folder: Path) -> dict[str, Any]:
    rows = rows_of(source, folder)
    prompts, outputs = lengths_of(rows)
    prompt_curve, output_curve = curve_of(prompts, 0, 2000), curve_of(outputs, 0, 2000)
    counted = joint_table(prompts, outputs)
    table = tilted(counted, prompt_curve, output_curve, correlations_of(prompts, outputs))
    print(f"{source.name.value}: moved {moved_share(counted, table):.1%} of the table's weight")
    document = {
        "origin": source.origin,
        "citation": source.citation,
        "prompt_tokens": knots_of(prompt_curve),
        "output_tokens": knots_of(output_curve),
        "weights": [[round(10_000 * weight) for weight in line] for line in table],
    }
    match source.arrivals:
        case Rates(bin_s):
            return document | {"rates": rates_of(rows, bin_s)}
        case Gaps():
            return document | {"gap_s": knots_of(gap_curve_of(gaps_of(rows)))}
        case None:
            return document


def write(folder: Path) -> None:
    documents = {source.name.value: document_of(source, folder) for source in SOURCES}
    text = yaml.safe_dump(documents, sort_keys=False, default_flow_style=None, width=110)
    head = "# Written by `python -m bench.workload_fits FOLDER --write`; tokens, shares, seconds.\n"
    (Path(fits.__file__).parent / "fits.yaml").write_text(head + text)


def figures_of(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [fmean(ordered), *(percentile(ordered, percent) for percent in (50, 90, 99))]


def compare(source: Source, folder: Path) -> None:
    rows = rows_of(source, folder)
    prompts, outputs = lengths_of(rows)
    lengths = FittedLengths(source.origin, fit(source.name).lengths)
    drawn = list(islice(lengths.pairs(Chance(1)), NUM_DRAWN))
    for name, actual, fitted in (
        ("in", prompts, [pair[0] for pair in drawn]),
        ("out", outputs, [pair[1] for pair in drawn]),
    ):
        line(f"{source.name.value}, {name}", figures_of(actual), figures_of(fitted))
    line(
        f"{source.name.value}, correlation of lengths, of logarithms",
        correlations_of(prompts, outputs),
        exact_correlations(lengths.curves),
    )
    if rows[0].at_s is not None:
        compare_arrivals(source, times_of(rows))


def compare_cnn(folder: Path) -> None:
    """The log-normal fit, against the hundred rows that it was made from."""
    rows = read_rows(folder / "cnn_dailymail_qwen_lengths_sample100.csv").rows
    actual = lengths_of(rows)
    prompts, outputs = zip(*islice(CNN_LENGTHS.pairs(Chance(1)), NUM_DRAWN), strict=True)
    for name, one, other in zip(("in", "out"), actual, (prompts, outputs), strict=True):
        line(f"cnn, {name}", figures_of(one), figures_of(other))
    fitted = correlations_of(prompts, outputs)
    line("cnn, correlation of lengths, of logarithms", correlations_of(*actual), fitted)


def compare_arrivals(source: Source, times_s: Sequence[float]) -> None:
    arrivals = fit(source.name).arrivals
    if arrivals is None:
        return
    actual = arrival_figures(times_s)
    # A hundred times as many, where the source does not end: the mean of such gaps needs it.
    drawn = islice(arrivals.times_s(random.Random(1)), 100 * len(times_s))
    fitted = arrival_figures(list(drawn))
    line(f"{source.name.value}, rate, CV, dispersion 1 s, 10 s", actual, fitted)


def arrival_figures(times_s: Sequence[float]) -> list[float]:
    gaps_s = [later - earlier for earlier, later in pairwise(times_s)]
    return [
        len(times_s) / times_s[-1], pstdev(gaps_s) / fmean(gaps_s), dispersion(times_s, 1.0),
        dispersion(times_s, 10.0),
    ]  # fmt: skip


def dispersion(times_s: Sequence[float], bin_s: float) -> float:
    counts = [0] * int(times_s[-1] // bin_s)
    for at_s in times_s:
        if at_s // bin_s < len(counts):
            counts[int(at_s // bin_s)] += 1
    return variance(counts) / fmean(counts)


def line(name: str, actual: Sequence[float], fitted: Sequence[float]) -> None:
    pairs = " | ".join(
        f"{one:.4g} → {other:.4g} ({other / one - 1:+.1%})"
        for one, other in zip(actual, fitted, strict=True)
    )
    print(f"| {name} | {pairs} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write:
        write(options.folder)
    for source in SOURCES:
        compare(source, options.folder)
    compare_cnn(options.folder)


if __name__ == "__main__":
    main()
