"""From options to a plan's settings: defaults that depend on others, and what excludes what."""

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.arrivals import (
    ArrivalKind,
    Arrivals,
    Bursts,
    Constant,
    Gamma,
    Poisson,
    Timestamps,
)
from pipelineserve.load.row_files import RowFile
from pipelineserve.load.selection import RowChoice
from pipelineserve_cli.load.options import LoadOptions
from pipelineserve_cli.load.planner import PlanSettings

_DEFAULT_RATE_PER_S = 1.0
_DEFAULT_REQUESTS = 100
_DEFAULT_DURATION_S = 3600.0
_MOST_REQUESTS = 1_000_000


def plan_settings(options: LoadOptions, file: RowFile | None) -> PlanSettings:
    """Settings of the plan that the user asked for.

    Raises:
        InvalidInputError: options that exclude each other, all of them named.
    """
    arrivals = _arrivals(options, file)
    faults = _contradictions(options, arrivals, file)
    if faults:
        raise InvalidInputError("the load", faults)
    first_row, end_row = options.rows or (0, None)
    return PlanSettings(
        seed=options.seed,
        arrivals=arrivals,
        input_lengths=options.input_tokens,
        output_lengths=options.output_tokens,
        num_requests=_num_requests(options, arrivals),
        duration_s=options.duration or _DEFAULT_DURATION_S,
        num_warm_up=options.warm_up,
        rows=RowChoice(
            first_row, end_row, options.shuffle, options.input_scale, options.longest_tokens
        ),
    )


def _arrivals(options: LoadOptions, file: RowFile | None) -> Arrivals:
    rate_per_s = options.rate or _DEFAULT_RATE_PER_S
    follows_file = file is not None and file.has_times and options.rate is None
    match options.arrivals or (ArrivalKind.TIMESTAMPS if follows_file else ArrivalKind.POISSON):
        case ArrivalKind.TIMESTAMPS:
            return Timestamps(options.rate_scale)
        case ArrivalKind.POISSON:
            return Poisson(rate_per_s)
        case ArrivalKind.GAMMA:
            return Gamma(rate_per_s, options.cv)
        case ArrivalKind.CONSTANT:
            return Constant(rate_per_s)
        case ArrivalKind.BURSTS:
            return Bursts(rate_per_s, options.burst_on, options.burst_off)


def _num_requests(options: LoadOptions, arrivals: Arrivals) -> int:
    if options.requests is not None:
        return options.requests
    is_bounded_otherwise = options.duration is not None or isinstance(arrivals, Timestamps)
    return _MOST_REQUESTS if is_bounded_otherwise else _DEFAULT_REQUESTS


def _contradictions(options: LoadOptions, arrivals: Arrivals, file: RowFile | None) -> list[Fault]:
    has_timestamps = isinstance(arrivals, Timestamps)
    faults = []
    if has_timestamps and options.rate is not None:
        faults.append(Fault("--rate", "timestamps have their own rate; change it by --rate-scale"))
    if not has_timestamps and options.rate_scale != 1.0:
        faults.append(Fault("--rate-scale", "only for timestamps; use --rate"))
    if has_timestamps and options.shuffle:
        faults.append(Fault("--shuffle", "timestamps have an order; choose --arrivals poisson"))
    for_files = {
        "--rows": options.rows is not None,
        "--shuffle": options.shuffle,
        "--input-scale": options.input_scale != 1.0,
        "--longest-tokens": options.longest_tokens is not None,
    }
    if file is None:
        faults += [
            Fault(name, "only for a file's rows; name the file with --dataset")
            for name, is_given in for_files.items()
            if is_given
        ]
    return faults
