"""Why a policy decided as it did; log line, metric label and page text all come from here."""

from enum import Enum


class Reason(Enum):
    """One member per cause that a decision of any policy can have."""

    STATIC_CHUNK = "static_chunk"
    CHUNK_CEILING = "chunk_ceiling"
    ARRIVAL_ORDER = "arrival_order"
    EVEN_SHARE_OF_POOL = "even_share_of_pool"
    SLOT_EMPTY = "slot_empty"
    ROUND_DRAINS = "round_drains"
    STAGES_FAILED = "stages_failed"
    RECOVERY_BUDGET_SPENT = "recovery_budget_spent"
    SWAP_IS_CHEAPER = "swap_is_cheaper"
    RECOMPUTE_IS_CHEAPER = "recompute_is_cheaper"
    NO_HOST_BLOCKS = "no_host_blocks"
    COSTS_NOT_MEASURED = "costs_not_measured"
    FIXED_PREEMPTION = "fixed_preemption"
