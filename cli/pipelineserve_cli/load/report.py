"""A run's report: the conditions that figures mean nothing without, and the figures."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipelineserve.load.summaries import Summary, summarise
from pipelineserve.load.targets import Targets, steady_window
from pipelineserve_cli.load.bodies import BodySettings
from pipelineserve_cli.load.client import ClientSettings
from pipelineserve_cli.load.figures import Figures, measure, whole_run
from pipelineserve_cli.load.plan import LoadPlan
from pipelineserve_cli.load.records import FailureKind, RequestRecord
from pipelineserve_cli.load.run import RunResult

SCHEMA = "pipelineserve.load/v1"
_LARGEST_LAG_RATIO = 0.01


@dataclass(frozen=True, slots=True)
class Conditions:
    """How the load was made and sent."""

    url: str
    endpoint: str
    model: str
    seed: int
    arrivals: str
    lengths: str
    rows: str
    num_planned: int
    num_sent: int
    planned_until: str
    warm_up: str
    drain: str
    ignore_eos: bool
    temperature: float
    num_retries: int
    policy: str


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Everything that a run has to say.

    Attributes:
        steady_window: between the planned arrivals at 10 % and 90 % of the measured requests; None
            below ten requests.
        lag_s: of measured requests, sent minus planned.
        bubble_ratios: per stage over the whole run, warm-up and drain included; empty where the
            server is none of ours.
        notes: what the reader must know before believing the figures.
    """

    conditions: Conditions
    targets: Targets
    whole_run: Figures
    steady_window: Figures | None
    lag_s: Summary | None
    bubble_ratios: tuple[float, ...]
    notes: tuple[str, ...]
    is_interrupted: bool

    def as_json(self) -> dict[str, Any]:
        """The documented JSON object; times in seconds, shares from 0 to 1."""
        return {"schema": SCHEMA, **asdict(self)}


def make_report(
    plan: LoadPlan,
    result: RunResult,
    *,
    targets: Targets,
    bodies: BodySettings,
    client: ClientSettings,
    drain_s: float,
    bubble_ratios: tuple[float, ...],
) -> LoadReport:
    """Judge a run."""
    records = result.records
    steady = steady_window([request.at_s for request in plan.measured])
    measured = [record for record in records if not record.is_warm_up]
    whole = measure(records, targets, whole_run(plan, records))
    lag_s = summarise(record.lag_s for record in measured)
    return LoadReport(
        conditions=_conditions(plan, measured, bodies, client, drain_s),
        targets=targets,
        whole_run=whole,
        steady_window=None if steady is None else measure(records, targets, steady),
        lag_s=lag_s,
        bubble_ratios=bubble_ratios,
        notes=tuple(_notes(plan, result, whole, lag_s)),
        is_interrupted=result.is_interrupted,
    )


def request_as_json(record: RequestRecord) -> dict[str, Any]:
    """One request of `--output`."""
    failure = record.failure
    fields = {**asdict(record), "ttft_s": record.ttft_s, "tpot_s": record.tpot_s}
    fields |= {"e2e_s": record.e2e_s, "lag_s": record.lag_s}
    del fields["text"]
    if failure is not None:
        fields["failure"] |= {"kind": failure.kind.value}
    return fields


def _conditions(
    plan: LoadPlan,
    measured: Sequence[RequestRecord],
    bodies: BodySettings,
    client: ClientSettings,
    drain_s: float,
) -> Conditions:
    return Conditions(
        url=client.url,
        endpoint=bodies.endpoint.value,
        model=bodies.model,
        seed=plan.seed,
        arrivals=f"open loop; {plan.arrivals}; gaps not rescaled",
        lengths=plan.lengths,
        rows=plan.rows,
        num_planned=len(plan.measured),
        num_sent=len(measured),
        planned_until=plan.bound.value,
        warm_up=f"the first {plan.num_warm_up} arrivals, excluded",
        drain=f"up to {drain_s:g} s after the last arrival, included in the whole run",
        ignore_eos=bodies.ignores_eos,
        temperature=bodies.temperature,
        num_retries=client.num_retries,
        policy="unknown to the client",
    )


def _notes(plan: LoadPlan, result: RunResult, whole: Figures, lag_s: Summary | None) -> list[str]:
    notes = []
    unsent = len(plan.requests) - len(result.records)
    if result.is_interrupted:
        notes.append(f"interrupted: {unsent} requests of the plan were never sent")
    if lag_s is not None and whole.ttft_s is not None:
        limit_s = _LARGEST_LAG_RATIO * whole.ttft_s.p50
        if lag_s.p99 > limit_s:
            notes.append(
                f"the generator was late: P99 of its lag is {lag_s.p99 * 1000:.2f} ms, more than "
                f"1 % of the TTFT's P50 ({limit_s * 1000:.2f} ms); use a less busy machine, a "
                "lower rate or more --max-connections"
            )
    return [*notes, *_failure_notes(result.records), *_token_notes(plan, result.records)]


def _failure_notes(records: Sequence[RequestRecord]) -> list[str]:
    notes = []
    failures = [record.failure for record in records if record.failure is not None]
    for kind in FailureKind:
        same = [failure for failure in failures if failure.kind is kind]
        if same:
            notes.append(f"{len(same)} failed, {kind.value}; the first: {same[0].message}")
    if any("ignore_eos" in failure.message for failure in failures):
        notes.append("the server refuses ignore_eos; run again with --no-ignore-eos")
    return notes


def _token_notes(plan: LoadPlan, records: Sequence[RequestRecord]) -> list[str]:
    notes = []
    whole = [record for record in records if record.failure is None]
    uncounted = sum(not record.has_usage for record in whole)
    if uncounted:
        notes.append(f"{uncounted} answers came without usage; their tokens are chunks with text")
    tokens = sum(record.output_tokens for record in whole)
    chunks = sum(len(record.chunk_times_s) for record in whole)
    if tokens > chunks:
        notes.append(
            f"{tokens} output tokens came in {chunks} chunks with text; a gap is between two "
            "chunks, and the first token that has no text of its own does not end the TTFT"
        )
    wanted = {request.index: request.max_tokens for request in plan.requests}
    short = sum(record.output_tokens < wanted[record.index] for record in whole)
    if short:
        notes.append(f"{short} answers are shorter than asked for")
    return notes
