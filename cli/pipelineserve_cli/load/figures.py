"""From records to figures, over the whole run or its steady window."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipelineserve.api import SloSpec
from pipelineserve.load.summaries import Share, Summary, share_of, summarise
from pipelineserve.load.targets import Target, Targets, Window
from pipelineserve_cli.load.plan import LoadPlan
from pipelineserve_cli.load.records import FailureKind, RequestRecord


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of the requests planned inside a window.

    Attributes:
        num_sent: finished + failed, where failed includes interrupted.
        failures: how many of each kind.
        ttft_s, tpot_s, gap_s, e2e_s: of finished requests; None without any.
        requests_per_s, output_tokens_per_s, input_tokens_per_s: requests that ended, tokens that
            came and prompts whose first token came inside the window, over its duration.
        attainment: requests that met every target, of those sent and not interrupted by the user.
        goodput_per_s: the same requests over the duration.
    """

    window: Window
    num_sent: int
    num_finished: int
    num_failed: int
    failures: dict[str, int]
    ttft_s: Summary | None
    tpot_s: Summary | None
    gap_s: Summary | None
    e2e_s: Summary | None
    requests_per_s: float
    output_tokens_per_s: float
    input_tokens_per_s: float
    attainment: Share | None
    goodput_per_s: float | None


def targets_of(slo: SloSpec) -> Targets:
    """A manifest's targets; its TTFT begins at the server, ours at the client, a little earlier."""
    ttft, tpot = (
        None if target is None else Target(target.percentile, target.target_s)
        for target in (slo.ttft, slo.tpot)
    )
    return Targets(ttft, tpot)


def whole_run(plan: LoadPlan, records: Sequence[RequestRecord]) -> Window:
    """From the first measured request's planned time to the end of the last one."""
    begin_s = plan.measured[0].at_s
    ends_s = [record.ended_s for record in records if not record.is_warm_up]
    return Window(begin_s, max(ends_s, default=begin_s))


def measure(records: Sequence[RequestRecord], targets: Targets, window: Window) -> Figures:
    """The figures of one window; warm-up requests never count."""
    measured = [record for record in records if not record.is_warm_up]
    inside = [record for record in measured if window.holds(record.planned_s)]
    finished = [record for record in inside if record.failure is None]
    kinds = Counter(record.failure.kind for record in inside if record.failure is not None)
    judged = len(inside) - kinds[FailureKind.INTERRUPTED]
    num_met = sum(meets(record, targets) for record in finished)
    has_targets = not targets.is_empty
    return Figures(
        window=window,
        num_sent=len(inside),
        num_finished=len(finished),
        num_failed=len(inside) - len(finished),
        failures={kind.value: count for kind, count in kinds.items()},
        ttft_s=_summary([record.ttft_s for record in finished]),
        tpot_s=_summary([record.tpot_s for record in finished]),
        gap_s=summarise(gap_s for record in finished for gap_s in record.gaps_s),
        e2e_s=_summary([record.e2e_s for record in finished]),
        requests_per_s=_per_s(_num_ended(measured, window), window),
        output_tokens_per_s=_per_s(_output_tokens(measured, window), window),
        input_tokens_per_s=_per_s(_input_tokens(measured, window), window),
        attainment=share_of(num_met, judged) if has_targets else None,
        goodput_per_s=_per_s(num_met, window) if has_targets else None,
    )


def meets(record: RequestRecord, targets: Targets) -> bool:
    """Whether a whole answer keeps every bound."""
    return record.failure is None and targets.are_met(record.ttft_s, record.tpot_s, record.e2e_s)


def _summary(values_s: Sequence[float | None]) -> Summary | None:
    return summarise(value_s for value_s in values_s if value_s is not None)


def _per_s(amount: float, window: Window) -> float:
    return amount / window.duration_s if window.duration_s > 0 else 0.0


def _num_ended(records: Sequence[RequestRecord], window: Window) -> int:
    return sum(record.failure is None and window.holds(record.ended_s) for record in records)


def _output_tokens(records: Sequence[RequestRecord], window: Window) -> float:
    """Each chunk counts as an equal part of its request's tokens."""
    return sum(
        record.output_tokens
        * sum(map(window.holds, record.chunk_times_s))
        / len(record.chunk_times_s)
        for record in records
        if record.chunk_times_s
    )


def _input_tokens(records: Sequence[RequestRecord], window: Window) -> int:
    return sum(
        record.prompt_tokens
        for record in records
        if record.chunk_times_s and window.holds(record.chunk_times_s[0])
    )
