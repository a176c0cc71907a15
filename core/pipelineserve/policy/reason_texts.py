"""Each reason as a short sentence for people: the live page, the terminal, events."""

from collections.abc import Mapping

from pipelineserve.policy.reasons import Reason


def text_of(reason: Reason) -> str:
    """What the reason says; no full stop, so that it can stand inside a sentence or a table."""
    return _TEXTS[reason]


_TEXTS: Mapping[Reason, str] = {
    Reason.STATIC_CHUNK: "the fixed chunk size",
    Reason.CHUNK_CEILING: "no more fits the engine's buffers",
    Reason.NO_PROMPT_WAITS: "no prompt waits",
    Reason.DECODES_FILL_CHUNK: "running answers alone fill the chunk",
    Reason.DEMAND_MET: "the smallest chunk that serves the demand",
    Reason.BACKLOG_FITS: "all waiting prompts fit",
    Reason.LARGEST_SAFE_CHUNK: "the largest chunk that keeps the TPOT target",
    Reason.NO_CHUNK_IS_SAFE: "even the smallest chunk misses the TPOT target",
    Reason.KV_PRESSURE: "KV memory is nearly full",
    Reason.KV_PRESSURE_OVER: "KV memory has room again",
    Reason.TPOT_VIOLATED: "TPOT is above its target",
    Reason.TTFT_AT_RISK: "TTFT comes close to its target",
    Reason.TTFT_HAS_SLACK: "TTFT is well within its target",
    Reason.TARGETS_MET: "the targets are met",
    Reason.NO_MEASUREMENT: "nothing new was measured",
    Reason.NOT_YET_DUE: "the next decision is not due yet",
    Reason.ROOM_FOR_DECODES: "running answers need the room",
    Reason.ABOVE_BOUNDARY: "a few answers too many would make the step much slower",
    Reason.SLOTS_UNEVEN: "micro-batches are made equal",
    Reason.SLOTS_EVEN: "micro-batches are equal",
    Reason.PROMPTS_CROSS_BOUNDARY: "prompts make the step slower anyway",
    Reason.HOLDING_OFF: "holding is off",
    Reason.LEASE_ENDED: "the controller's lease ended",
    Reason.ARRIVAL_ORDER: "first come, first served",
    Reason.AGEING_ORDER: "short prompts first, waiting counts",
    Reason.IN_TIME: "requests that can still be in time go first",
    Reason.LATE: "all who wait are late already",
    Reason.LATE_SHARE: "the share kept for late requests",
    Reason.EVEN_SHARE_OF_POOL: "an even share of the running answers",
    Reason.SLOT_EMPTY: "the slot is free",
    Reason.ROUND_DRAINS: "the round drains first",
    Reason.GUARD_PASSED: "the change is within its bounds",
    Reason.GUARD_NOT_FINITE: "the proposal was no number; the last one stays",
    Reason.GUARD_TOO_SOON: "too soon after the last change",
    Reason.GUARD_TOO_SMALL: "the change is too small to matter",
    Reason.GUARD_STEP_LIMITED: "one step towards what was proposed",
    Reason.GUARD_OUT_OF_BOUNDS: "brought within the bounds of the manifest",
    Reason.GUARD_UNSETTLED: "waits until the proposal has settled",
    Reason.TARGETS_FEASIBLE: "some chunk size meets both targets",
    Reason.NO_LOAD: "there is no load to judge by",
    Reason.LOAD_TOO_HIGH: "more load arrives than any chunk size can serve",
    Reason.KV_TOO_SMALL: "KV memory is too small for this load",
    Reason.TPOT_TOO_STRICT: "no chunk size meets the TPOT target",
    Reason.TTFT_TOO_STRICT: "no chunk size meets the TTFT target",
    Reason.TARGETS_TOO_STRICT: "no chunk size meets either target",
    Reason.TARGETS_CONFLICT: "each target can be met, but not both at once",
    Reason.STAGES_FAILED: "stages failed and are started anew",
    Reason.RECOVERY_BUDGET_SPENT: "stages failed too often to be started anew",
    Reason.SWAP_IS_CHEAPER: "copying KV to the host is cheaper",
    Reason.RECOMPUTE_IS_CHEAPER: "computing KV again is cheaper",
    Reason.NO_HOST_BLOCKS: "the host has no room for KV",
    Reason.COSTS_NOT_MEASURED: "the costs are not measured yet",
    Reason.FIXED_PREEMPTION: "preemption is set by hand",
}
