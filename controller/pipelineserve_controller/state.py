"""All that a page, `pserve status` or a metric shows of the sidecar, as one frozen value.

`/api/state` answers with it and `/api/events` sends it again and again, as JSON: each field under
its own name, enums as their values, tuples as lists. A span is in seconds (`_s`); a point in time
is `_unix_s`, seconds since 1970, and only for the screen. None means that it is not known, never 0.
"""

from dataclasses import dataclass

from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.objectives import Mode

# Chunk and latencies once a second, for five minutes.
MAX_HISTORY = 300
MAX_DECISIONS = 50


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """The link to the engine's scheduler.

    Attributes:
        is_connected: a session is open.
        since_unix_s: when it became so, or ceased to be so.
        num_sessions: sessions opened so far.
        problem: why there is none, in words; empty while connected.
    """

    is_connected: bool
    since_unix_s: float
    num_sessions: int
    problem: str


@dataclass(frozen=True, slots=True)
class EngineState:
    """What the engine said of itself when the session was opened.

    Attributes:
        inactive_reason: why it serves but cannot be controlled, in its own words; empty where it
            can, and from controllers that do not know.
    """

    name: str
    version: str
    num_stages: int
    num_slots: int
    max_chunk_tokens: int
    static_chunk_tokens: int
    kv_tokens: int
    capabilities: tuple[str, ...]
    inactive_reason: str = ""


@dataclass(frozen=True, slots=True)
class LatencyState:
    """One latency over the window against its target; held time counts.

    Attributes:
        target_s: None without a target.
        percentile: the one that is held to the target, and that `measured_s` is.
        num_requests: requests in the window that have this latency.
    """

    target_s: float | None
    percentile: int
    measured_s: float | None
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    num_requests: int


@dataclass(frozen=True, slots=True)
class ChunkState:
    """The chunk size, in tokens of one micro-batch, decodes included.

    Attributes:
        policy: Static, Greedy or Predictive, as the resource asks.
        in_use: what is really sent: a Predictive that is still learning explores with fixed chunks.
        chunk_tokens: of the latest micro-batch; None before the first.
        reason: of the scheduler for that chunk.
        min_tokens: bound of what may be chosen, as the next two.
    """

    policy: str
    in_use: str
    chunk_tokens: int | None
    reason: str
    min_tokens: int
    max_tokens: int
    static_tokens: int


@dataclass(frozen=True, slots=True)
class ModelState:
    """The fitted step-time model, which Predictive and holding need.

    Attributes:
        is_ready: good enough to be sent.
        reason: why, or what is still lacking.
        num_samples: micro-batches that it was learned from.
        num_refused: impossible ones that were not.
        feedback_ratio: measured ÷ predicted step time, lately; None without a model.
        spread_ratio: standard deviation of that around 1; None without a model.
        table_tokens: token counts at which the time was measured, ascending.
        table_times_s: seconds of a step on the slowest stage at each.
        boundaries: token counts after which the time jumps.
    """

    is_ready: bool
    reason: str
    num_samples: int
    num_refused: int
    feedback_ratio: float | None
    spread_ratio: float | None
    table_tokens: tuple[int, ...]
    table_times_s: tuple[float, ...]
    boundaries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoadState:
    """How things stand in the scheduler; None: the engine has not said so yet."""

    num_waiting: int | None
    waiting_tokens: int | None
    num_running: int | None
    num_decoding: int | None
    num_held: int | None
    oldest_wait_s: float | None
    kv_free_ratio: float | None
    demand_tokens_per_s: float | None
    capacity_tokens_per_s: float | None
    bubble_ratio_per_stage: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FreshnessState:
    """Whether what is seen is up to date.

    Attributes:
        is_fresh: whether decisions follow what is measured.
        reason: fresh, or what is wrong: a member of `pipelineserve.policy.reasons`.
        age_s: since the engine last told something; None: it never did.
        num_lost: records that this session lost on the way.
        num_refused: records with impossible values.
        num_differences: figures that the engine's Prometheus endpoint gives differently now.
        differences: these, in words.
    """

    is_fresh: bool
    reason: str
    age_s: float | None
    num_lost: int
    num_refused: int
    num_differences: int
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SloState:
    """Whether the targets are met, and whether they can be.

    Attributes:
        met: both percentiles were within their targets over the window.
        met_reason: why, in a word of `pipelineserve.policy.reasons`.
        attainment_ratio: share of the window's requests that met every target; None without any.
        window_s: the window.
        feasible: whether some chunk size can meet the targets at the present load.
        feasible_reason: why, or what is in the way.
        feasible_instead: what could be met, in words; empty while feasible or unknown.
        least_ttft_s: the TTFT that could be met with this TPOT target; None if unknown.
        least_tpot_s: the TPOT that could be met with this TTFT target; None if unknown.
    """

    met: Answer
    met_reason: str
    attainment_ratio: float | None
    window_s: float
    feasible: Answer
    feasible_reason: str
    feasible_instead: str
    least_ttft_s: float | None
    least_tpot_s: float | None


@dataclass(frozen=True, slots=True)
class ControlState:
    """Who is in charge.

    Attributes:
        mode: Active sends policies; in the other two the engine keeps its static chunk.
        is_effective: the policy in force in the engine is this sidecar's.
        is_superseded: a later controller's session counts; this one waits until that is gone.
        lease_left_s: until the policy in force lapses; 0 without one, None if unknown.
        resource_name: of the targets' source; empty if it has none.
        resource_uid: identity of the resource.
        generation: of the targets that are followed; 0 before any.
        source: where they came from, file, operator or flags.
        refused_edit: why the latest edit was not taken; empty if it was.
        holding: Off, TpotFirst, E2eFirst or Auto, as the resource asks.
        holding_in_use: off, tpot_first or e2e_first, as sent.
        order: Arrival, Ageing or Triage, as the resource asks.
        order_in_use: arrival, ageing or triage, as sent.
    """

    mode: Mode
    is_effective: bool
    is_superseded: bool
    lease_left_s: float | None
    resource_name: str
    resource_uid: str
    generation: int
    source: str
    refused_edit: str
    holding: str
    holding_in_use: str
    order: str
    order_in_use: str


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """One second of the recent past; None where nothing was known."""

    at_unix_s: float
    chunk_tokens: int | None
    ttft_s: float | None
    tpot_s: float | None
    demand_tokens_per_s: float | None
    capacity_tokens_per_s: float | None
    num_waiting: int | None
    num_running: int | None
    num_held: int | None
    kv_free_ratio: float | None


@dataclass(frozen=True, slots=True)
class DecisionState:
    """One decision that changed something, or whose reason changed.

    Attributes:
        at_unix_s: when.
        summary: what, in words: "chunk 512 → 640", "hold the oldest", "Predictive starts".
        reason: why, a member of `pipelineserve.policy.reasons`.
        facts: figures that it rests on, name and value as text with its unit.
        is_sent: whether it went to the engine.
    """

    at_unix_s: float
    summary: str
    reason: str
    facts: tuple[tuple[str, str], ...]
    is_sent: bool


@dataclass(frozen=True, slots=True)
class SidecarState:
    """Everything at one moment.

    Attributes:
        now_unix_s: that moment.
        started_unix_s: when this sidecar started.
        history: oldest first, at most `MAX_HISTORY`.
        decisions: newest first, at most `MAX_DECISIONS`.
    """

    now_unix_s: float
    started_unix_s: float
    version: str
    control: ControlState
    connection: ConnectionState
    engine: EngineState | None
    freshness: FreshnessState
    ttft: LatencyState
    tpot: LatencyState
    slo: SloState
    chunk: ChunkState
    model: ModelState
    load: LoadState
    history: tuple[HistoryPoint, ...]
    decisions: tuple[DecisionState, ...]
