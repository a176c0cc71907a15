"""Every workload that the product is evaluated with, by its name.

A workload is drawn from a shipped fit, or made of the trace's own rows if its file is given.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.arrivals import Bursts, Gamma, Poisson, Process, Timestamps
from pipelineserve.load.lengths import Uniform
from pipelineserve.load.row_files import RowFile
from pipelineserve.load.selection import RowChoice
from pipelineserve_simulator.workloads.arriving import ArrivalSource, RandomArrivals
from pipelineserve_simulator.workloads.fits import FitName, fit
from pipelineserve_simulator.workloads.generated import GeneratedWorkload
from pipelineserve_simulator.workloads.lengths import (
    FittedLengths,
    IndependentLengths,
    LengthSource,
    LogNormalPair,
    ReversedLengths,
)
from pipelineserve_simulator.workloads.replay import RowWorkload
from pipelineserve_simulator.workloads.requests import Workload

# Azure's lengths, sent as random tokens of Qwen's vocabulary and read again, are this much longer.
QWEN_INPUT_SCALE = 1.052
# Windows of 15 min of the conversation trace, whose 58 min they cover evenly; the first is the one
# that FastPP's paper replays, and the third asks for more than any policy can serve.
REPLAY_WINDOW_ROWS = ((0, 4424), (3108, 8206), (6574, 13_088), (11_301, 16_720), (15_325, 19_365))


class WorkloadName(Enum):
    """Which workload."""

    AZURE_400 = "azure-400"
    AZURE_4000 = "azure-4000"
    AZURE_REPLAY = "azure-replay"
    AZURE_REPLAY_2 = "azure-replay-2"
    AZURE_REPLAY_3 = "azure-replay-3"
    AZURE_REPLAY_4 = "azure-replay-4"
    AZURE_REPLAY_5 = "azure-replay-5"
    AZURE_CODE = "azure-code"
    SHAREGPT = "sharegpt"
    CNN = "cnn"
    CNN_REVERSED = "cnn-reversed"
    PREFILL_HEAVY = "prefill-heavy"
    DECODE_HEAVY = "decode-heavy"
    BURSTY_GAMMA = "bursty-gamma"
    BURSTY_ON_OFF = "bursty-on-off"
    STRICT = "strict"


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """What may be chosen; None is the workload's own.

    Attributes:
        rate_per_s: mean arrivals; workloads that are swept over rates have none of their own.
        rate_scale: of workloads with times, how many times as fast these pass.
        file: the trace that the workload is about, instead of its fit.
    """

    rate_per_s: float | None = None
    rate_scale: float | None = None
    num_requests: int | None = None
    file: RowFile | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a workload is made of.

    Attributes:
        lengths: a fit's name, or a source that needs none.
        process: from a rate to the arrivals; None where the trace's own times count.
        rate_per_s: its own mean rate; None for a sweep.
        num_requests: its own number.
        rows: what is taken of the trace's file.
        rate_scale: of the trace's times.
    """

    lengths: FitName | LengthSource
    process: Callable[[float], Process] | None
    rate_per_s: float | None
    num_requests: int
    rows: RowChoice = field(default_factory=RowChoice)
    rate_scale: float = 1.0


# Fitted to articles and highlights of 100 rows of CNN/DailyMail, counted with Qwen's vocabulary.
CNN_LENGTHS = LogNormalPair(6.664, 0.501, 4.075, 0.427, 0.37)
_FIRST_400 = RowChoice(end_row=400, input_scale=QWEN_INPUT_SCALE)
_SHUFFLED = RowChoice(is_shuffled=True, input_scale=QWEN_INPUT_SCALE)
_LONG, _SHORT = Uniform(512, 1024), Uniform(32, 64)


def _gamma(rate_per_s: float) -> Process:
    return Gamma(rate_per_s, cv=4.0)


def _on_off(rate_per_s: float) -> Process:
    return Bursts(rate_per_s, on_s=10.0, off_s=10.0)


def _replay(fitted: FitName, window_index: int) -> _Entry:
    first_row, end_row = REPLAY_WINDOW_ROWS[window_index]
    rows = RowChoice(first_row=first_row, end_row=end_row, input_scale=QWEN_INPUT_SCALE)
    return _Entry(fitted, None, None, 10_000, rows, rate_scale=0.9)


_ENTRIES = {
    WorkloadName.AZURE_400: _Entry(
        FitName.AZURE_CONVERSATION_FIRST_400, Poisson, None, 400, _FIRST_400
    ),
    WorkloadName.AZURE_4000: _Entry(FitName.AZURE_CONVERSATION, Poisson, None, 4000, _SHUFFLED),
    WorkloadName.AZURE_REPLAY: _replay(FitName.AZURE_CONVERSATION_FIRST_15_MIN, 0),
    WorkloadName.AZURE_REPLAY_2: _replay(FitName.AZURE_CONVERSATION_WINDOW_2, 1),
    WorkloadName.AZURE_REPLAY_3: _replay(FitName.AZURE_CONVERSATION_WINDOW_3, 2),
    WorkloadName.AZURE_REPLAY_4: _replay(FitName.AZURE_CONVERSATION_WINDOW_4, 3),
    WorkloadName.AZURE_REPLAY_5: _replay(FitName.AZURE_CONVERSATION_WINDOW_5, 4),
    WorkloadName.AZURE_CODE: _Entry(
        FitName.AZURE_CODE, None, None, 8819, RowChoice(input_scale=QWEN_INPUT_SCALE)
    ),
    WorkloadName.SHAREGPT: _Entry(
        FitName.SHAREGPT, Poisson, None, 4000, RowChoice(is_shuffled=True)
    ),
    WorkloadName.CNN: _Entry(CNN_LENGTHS, Poisson, None, 1000),
    WorkloadName.CNN_REVERSED: _Entry(ReversedLengths(CNN_LENGTHS), Poisson, None, 1000),
    WorkloadName.PREFILL_HEAVY: _Entry(IndependentLengths(_LONG, _SHORT), Poisson, 5.0, 1000),
    WorkloadName.DECODE_HEAVY: _Entry(IndependentLengths(_SHORT, _LONG), Poisson, 14.0, 1000),
    WorkloadName.BURSTY_GAMMA: _Entry(FitName.AZURE_CONVERSATION, _gamma, 3.5, 4000, _SHUFFLED),
    WorkloadName.BURSTY_ON_OFF: _Entry(FitName.AZURE_CONVERSATION, _on_off, 4.5, 4000, _SHUFFLED),
    WorkloadName.STRICT: _Entry(FitName.AZURE_CONVERSATION, Poisson, None, 4000, _SHUFFLED),
}


REPLAY_WINDOWS = (
    WorkloadName.AZURE_REPLAY,
    WorkloadName.AZURE_REPLAY_2,
    WorkloadName.AZURE_REPLAY_3,
    WorkloadName.AZURE_REPLAY_4,
    WorkloadName.AZURE_REPLAY_5,
)
"""In the order of `REPLAY_WINDOW_ROWS`."""


def target_scales(name: WorkloadName) -> tuple[float, ...]:
    """The factors on the targets under which the workload is evaluated."""
    return (0.8, 0.6, 0.4, 0.2) if name is WorkloadName.STRICT else (1.0,)


def make_workload(name: WorkloadName, options: WorkloadOptions) -> Workload:
    """A workload by its name.

    Raises:
        InvalidInputError: options that the workload does not have, or a rate that it needs.
    """
    entry = _ENTRIES[name]
    faults = _faults(entry, options)
    if faults:
        raise InvalidInputError(f"the workload {name.value}", faults)
    num_requests = options.num_requests or entry.num_requests
    rate_scale = options.rate_scale or entry.rate_scale
    process = _process(entry, options)
    if options.file is not None:
        times = Timestamps(rate_scale) if process is None else RandomArrivals(process)
        return RowWorkload(options.file, entry.rows, times, num_requests)
    arrivals = _fitted_arrivals(entry, rate_scale) if process is None else RandomArrivals(process)
    return GeneratedWorkload(_lengths(entry), arrivals, num_requests)


def _faults(entry: _Entry, options: WorkloadOptions) -> list[Fault]:
    faults = []
    if options.file is not None and not isinstance(entry.lengths, FitName):
        faults.append(Fault("file", "got one, expected none: these lengths come from no trace"))
    if entry.process is None and options.rate_per_s is not None:
        text = "got one, expected none: the trace has its own times; use rate_scale"
        faults.append(Fault("rate_per_s", text))
    if entry.process is not None and options.rate_scale is not None:
        faults.append(Fault("rate_scale", "got one, expected rate_per_s: it follows no times"))
    if entry.process is not None and options.rate_per_s is None and entry.rate_per_s is None:
        text = "got none, expected arrivals per second: this workload is swept over rates"
        faults.append(Fault("rate_per_s", text))
    for name, value in (
        ("rate_per_s", options.rate_per_s),
        ("rate_scale", options.rate_scale),
        ("num_requests", options.num_requests),
    ):
        if value is not None and value <= 0:
            faults.append(Fault(name, f"got {value}, expected more than 0"))
    return faults


def _process(entry: _Entry, options: WorkloadOptions) -> Process | None:
    rate_per_s = options.rate_per_s or entry.rate_per_s
    return None if entry.process is None or rate_per_s is None else entry.process(rate_per_s)


def _lengths(entry: _Entry) -> LengthSource:
    if not isinstance(entry.lengths, FitName):
        return entry.lengths
    fitted = fit(entry.lengths)
    return FittedLengths(fitted.origin, fitted.lengths, entry.rows.input_scale)


def _fitted_arrivals(entry: _Entry, rate_scale: float) -> ArrivalSource:
    arrivals = fit(entry.lengths).arrivals if isinstance(entry.lengths, FitName) else None
    if arrivals is None:
        text = "got none, expected the trace, whose times nothing else knows"
        raise InvalidInputError("the workload", [Fault("file", text)])
    return replace(arrivals, rate_scale=rate_scale)
