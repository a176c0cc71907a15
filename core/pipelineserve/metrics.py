"""The catalogue: every metric's name, kind, unit, labels and meaning, once.

Telemetry, dashboards and alert rules are made from it. Base units only (seconds, ratios), labels
few and bounded, never a request's id.
"""

from dataclasses import dataclass
from enum import Enum


class MetricKind(Enum):
    """What a series may do: only rise, go both ways, or count into buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of series; `buckets` are upper bounds in the metric's base unit."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


# From 1 ms to minutes: a CPU's step and an overloaded queue fall into the same scale.
LATENCY_BUCKETS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75,
    1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
TOKEN_BUCKETS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072)

TTFT = Metric(
    "pipelineserve_ttft_seconds",
    MetricKind.HISTOGRAM,
    "Arrival at the server to the first token; once per request that produced one.",
    buckets=LATENCY_BUCKETS_S,
)
TPOT = Metric(
    "pipelineserve_tpot_seconds",
    MetricKind.HISTOGRAM,
    "(Last token - first token) / (output tokens - 1), per finished request of two tokens or more.",
    buckets=LATENCY_BUCKETS_S,
)
TOKEN_GAP = Metric(
    "pipelineserve_token_gap_seconds",
    MetricKind.HISTOGRAM,
    "Each gap between two consecutive tokens of one request.",
    buckets=LATENCY_BUCKETS_S,
)
E2E = Metric(
    "pipelineserve_e2e_seconds",
    MetricKind.HISTOGRAM,
    "Arrival at the server to the last token, per finished request.",
    buckets=LATENCY_BUCKETS_S,
)
QUEUE_WAIT = Metric(
    "pipelineserve_queue_wait_seconds",
    MetricKind.HISTOGRAM,
    "Arrival to the first micro-batch that carries a piece of the request.",
    buckets=LATENCY_BUCKETS_S,
)
REQUESTS = Metric(
    "pipelineserve_requests_total",
    MetricKind.COUNTER,
    "Requests that ended, by how: stop, length, cancelled, rejected, error (an internal one).",
    labels=("outcome",),
)
ACCOUNTING_FAULTS = Metric(
    "pipelineserve_accounting_faults_total",
    MetricKind.COUNTER,
    "Times that the requests in the engine did not add up; the log has the numbers. Must stay 0.",
)
REQUESTS_WAITING = Metric(
    "pipelineserve_requests_waiting", MetricKind.GAUGE, "Requests in the waiting queue."
)
REQUESTS_RUNNING = Metric(
    "pipelineserve_requests_running", MetricKind.GAUGE, "Requests in prefill or decode."
)
PREEMPTIONS = Metric(
    "pipelineserve_preemptions_total",
    MetricKind.COUNTER,
    "Requests sent back to the queue for want of KV blocks, by what became of their KV, and why.",
    labels=("kind", "reason"),
)
RECOVERIES = Metric(
    "pipelineserve_recoveries_total",
    MetricKind.COUNTER,
    "Times that the stages failed and were started anew, live requests kept.",
)
PROMPT_TOKENS = Metric(
    "pipelineserve_prompt_tokens_total", MetricKind.COUNTER, "Prompt tokens of accepted requests."
)
CACHED_TOKENS = Metric(
    "pipelineserve_prefix_cached_tokens_total",
    MetricKind.COUNTER,
    "Tokens whose KV came from the prefix cache instead of being computed.",
)
OUTPUT_TOKENS = Metric(
    "pipelineserve_output_tokens_total", MetricKind.COUNTER, "Tokens sampled and kept."
)
KV_USED = Metric(
    "pipelineserve_kv_used_ratio",
    MetricKind.GAUGE,
    "Share of KV blocks that a request holds (blocks kept only as prefix cache are free).",
)
KV_SWAPPED = Metric(
    "pipelineserve_kv_swapped_blocks",
    MetricKind.GAUGE,
    "Host blocks that hold the KV of preempted requests.",
)
STEP_TIME = Metric(
    "pipelineserve_step_time_seconds",
    MetricKind.HISTOGRAM,
    "Computation of one micro-batch on one stage.",
    labels=("stage",),
    buckets=LATENCY_BUCKETS_S,
)
STAGE_BUSY = Metric(
    "pipelineserve_stage_busy_seconds_total",
    MetricKind.COUNTER,
    "Time in which this stage computed; bubble over any span: 1 - its rise / that of work seconds.",
    labels=("stage",),
)
WORK = Metric(
    "pipelineserve_work_seconds_total",
    MetricKind.COUNTER,
    "Time with at least one micro-batch in the pipeline.",
)
BUBBLE = Metric(
    "pipelineserve_stage_bubble_ratio",
    MetricKind.GAUGE,
    "Share of the time with work in the pipeline in which this stage computed nothing, lately.",
    labels=("stage",),
)
MICRO_BATCH_TOKENS = Metric(
    "pipelineserve_micro_batch_tokens",
    MetricKind.HISTOGRAM,
    "Tokens of one micro-batch, decodes included.",
    buckets=TOKEN_BUCKETS,
)
CHUNK_TOKENS = Metric(
    "pipelineserve_chunk_tokens",
    MetricKind.GAUGE,
    "Token budget of the latest micro-batch, decodes included.",
)
REQUESTS_HELD = Metric(
    "pipelineserve_requests_held",
    MetricKind.GAUGE,
    "Decodes that a policy keeps out of micro-batches for now.",
)
POLICIES = Metric(
    "pipelineserve_policies_total",
    MetricKind.COUNTER,
    "Policies that controllers sent, by outcome: applied, repeated, or why refused.",
    labels=("outcome",),
)
POLICY_IN_FORCE = Metric(
    "pipelineserve_policy_in_force",
    MetricKind.GAUGE,
    "1 while a controller's policy holds, 0 while the static chunk does.",
)
POLICY_LAPSES = Metric(
    "pipelineserve_policy_lapses_total",
    MetricKind.COUNTER,
    "Policies whose lease ended without a newer one; the static chunk came back.",
)
WATCHERS = Metric(
    "pipelineserve_control_watchers",
    MetricKind.GAUGE,
    "Controllers that are told what happens.",
)
RECORDS_LOST = Metric(
    "pipelineserve_control_records_lost_total",
    MetricKind.COUNTER,
    "Step and request records that a slow watcher was never told.",
)
CONTROL_ACTIVE = Metric(
    "pipelineserve_control_active",
    MetricKind.GAUGE,
    "1 while the engine can be controlled, 0 while its add-on is inactive.",
)

CONTROL_OF_ENGINE: tuple[Metric, ...] = (
    REQUESTS_HELD,
    POLICIES,
    POLICY_IN_FORCE,
    POLICY_LAPSES,
    WATCHERS,
    RECORDS_LOST,
    CONTROL_ACTIVE,
)
"""What an engine's control serves, also where the rest is another engine's."""

CATALOGUE: tuple[Metric, ...] = (
    TTFT,
    TPOT,
    TOKEN_GAP,
    E2E,
    QUEUE_WAIT,
    REQUESTS,
    ACCOUNTING_FAULTS,
    REQUESTS_WAITING,
    REQUESTS_RUNNING,
    PREEMPTIONS,
    RECOVERIES,
    PROMPT_TOKENS,
    CACHED_TOKENS,
    OUTPUT_TOKENS,
    KV_USED,
    KV_SWAPPED,
    STEP_TIME,
    STAGE_BUSY,
    WORK,
    BUBBLE,
    MICRO_BATCH_TOKENS,
    CHUNK_TOKENS,
    REQUESTS_HELD,
    POLICIES,
    POLICY_IN_FORCE,
    POLICY_LAPSES,
    WATCHERS,
    RECORDS_LOST,
    CONTROL_ACTIVE,
)

# What the sidecar serves; it knows the engine's figures only from what the engine tells.
CONTROL_LATENCY = Metric(
    "pipelineserve_control_latency_seconds",
    MetricKind.GAUGE,
    "TTFT and TPOT over the targets' window as the controller sees them, held time included.",
    labels=("latency", "quantile"),
)
CONTROL_TARGET = Metric(
    "pipelineserve_control_target_seconds", MetricKind.GAUGE, "Target.", labels=("latency",)
)
SLO_MET = Metric(
    "pipelineserve_slo_met",
    MetricKind.GAUGE,
    "1: both percentiles are within their targets; no series while that is unknown.",
)
SLO_FEASIBLE = Metric(
    "pipelineserve_slo_feasible",
    MetricKind.GAUGE,
    "1: some chunk size can meet the targets at the present load; no series while unknown.",
)
SLO_ATTAINMENT = Metric(
    "pipelineserve_slo_attainment_ratio",
    MetricKind.GAUGE,
    "Share of the window's requests that met every target.",
)
ENGINE_CONNECTED = Metric(
    "pipelineserve_control_connected",
    MetricKind.GAUGE,
    "1: a session with the scheduler is open.",
)
CONTROL_EFFECTIVE = Metric(
    "pipelineserve_control_effective",
    MetricKind.GAUGE,
    "1: the policy in force in the engine is this controller's.",
)
INPUT_FRESH = Metric(
    "pipelineserve_control_input_fresh",
    MetricKind.GAUGE,
    "1: decisions follow what is measured; 0: the last safe policy is held, for this reason.",
    labels=("reason",),
)
INPUT_DIFFERENCES = Metric(
    "pipelineserve_control_input_differences",
    MetricKind.GAUGE,
    "Figures that the engine's metrics give differently from what it tells the controller.",
)
OBJECTIVES_GENERATION = Metric(
    "pipelineserve_control_generation",
    MetricKind.GAUGE,
    "Generation of the objectives that are followed; 0 before any.",
)
MODEL_FEEDBACK = Metric(
    "pipelineserve_control_model_feedback_ratio",
    MetricKind.GAUGE,
    "Measured / predicted step time, lately.",
)
MODEL_SPREAD = Metric(
    "pipelineserve_control_model_spread_ratio",
    MetricKind.GAUGE,
    "Standard deviation of measured / predicted step time around 1.",
)
CONTROL_TURNS = Metric("pipelineserve_control_turns_total", MetricKind.COUNTER, "Turns taken.")
POLICIES_SENT = Metric(
    "pipelineserve_control_policies_total",
    MetricKind.COUNTER,
    "Policies sent to the engine, renewals included, by what came of it: applied, failed.",
    labels=("outcome",),
)
JOURNAL_LOST = Metric(
    "pipelineserve_control_journal_lost_total",
    MetricKind.COUNTER,
    "Turns that could not be written to the journal.",
)

CONTROLLER_CATALOGUE: tuple[Metric, ...] = (
    CONTROL_LATENCY,
    CONTROL_TARGET,
    SLO_MET,
    SLO_FEASIBLE,
    SLO_ATTAINMENT,
    ENGINE_CONNECTED,
    CONTROL_EFFECTIVE,
    INPUT_FRESH,
    INPUT_DIFFERENCES,
    OBJECTIVES_GENERATION,
    MODEL_FEEDBACK,
    MODEL_SPREAD,
    CONTROL_TURNS,
    POLICIES_SENT,
    JOURNAL_LOST,
)

# What the operator serves of itself.
OPERATOR_RECONCILES = Metric(
    "pipelineserve_operator_reconciles_total",
    MetricKind.COUNTER,
    "Looks at a resource, by outcome: done, blocked (the status says why), failed.",
    labels=("outcome",),
)
OPERATOR_RECONCILE_TIME = Metric(
    "pipelineserve_operator_reconcile_seconds",
    MetricKind.HISTOGRAM,
    "One look at a resource, requests to the API server included.",
    buckets=LATENCY_BUCKETS_S,
)
OPERATOR_WRITES = Metric(
    "pipelineserve_operator_writes_total",
    MetricKind.COUNTER,
    "Objects applied, created or deleted; status and events apart.",
)
OPERATOR_REQUESTS = Metric(
    "pipelineserve_operator_requests_total",
    MetricKind.COUNTER,
    "Requests to the API server, those of watches apart.",
)
OPERATOR_EVENTS_DROPPED = Metric(
    "pipelineserve_operator_events_dropped_total",
    MetricKind.COUNTER,
    "Events that were not written, because there were too many or the API server refused.",
)
OPERATOR_QUEUE = Metric(
    "pipelineserve_operator_queue_depth",
    MetricKind.GAUGE,
    "Resources that are to be looked at now and are not.",
)
OPERATOR_RESOURCES = Metric(
    "pipelineserve_operator_resources", MetricKind.GAUGE, "Resources that are there."
)
OPERATOR_LEADS = Metric(
    "pipelineserve_operator_leader", MetricKind.GAUGE, "1: holds the Lease; 0: waits for it."
)
OPERATOR_SIDECARS = Metric(
    "pipelineserve_operator_sidecars_connected", MetricKind.GAUGE, "Sidecars that attend."
)
OPERATOR_REFUSALS = Metric(
    "pipelineserve_operator_sidecar_refusals_total",
    MetricKind.COUNTER,
    "Sidecars turned away and words of theirs left out, by cause.",
    labels=("cause",),
)
OPERATOR_WATCH_AGE = Metric(
    "pipelineserve_operator_watch_age_seconds",
    MetricKind.GAUGE,
    "Time since anything was heard of any watched object; no series before the first.",
)
OPERATOR_MEMORY = Metric(
    "pipelineserve_operator_resident_memory_bytes", MetricKind.GAUGE, "Memory of the process."
)
OPERATOR_BUILD = Metric(
    "pipelineserve_operator_build_info", MetricKind.GAUGE, "Always 1.", labels=("version",)
)

OPERATOR_CATALOGUE: tuple[Metric, ...] = (
    OPERATOR_RECONCILES,
    OPERATOR_RECONCILE_TIME,
    OPERATOR_WRITES,
    OPERATOR_REQUESTS,
    OPERATOR_EVENTS_DROPPED,
    OPERATOR_QUEUE,
    OPERATOR_RESOURCES,
    OPERATOR_LEADS,
    OPERATOR_SIDECARS,
    OPERATOR_REFUSALS,
    OPERATOR_WATCH_AGE,
    OPERATOR_MEMORY,
    OPERATOR_BUILD,
)
