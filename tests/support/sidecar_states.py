"""States of a sidecar as a page would get them, valid by default."""

from dataclasses import replace
from math import sin

from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.objectives import Mode
from pipelineserve_controller.state import (
    ChunkState,
    ConnectionState,
    ControlState,
    DecisionState,
    EngineState,
    FreshnessState,
    HistoryPoint,
    LatencyState,
    LoadState,
    ModelState,
    SidecarState,
    SloState,
)

NOW_UNIX_S = 1_790_000_000.0
_NO_LOAD = LoadState(None, None, None, None, None, None, None, None, None, ())


def busy_state(now_unix_s: float = NOW_UNIX_S) -> SidecarState:
    """A sidecar in the middle of its work: both targets met, a history of five minutes."""
    history = tuple(_point(now_unix_s, age_s) for age_s in range(299, -1, -1))
    return SidecarState(
        now_unix_s=now_unix_s,
        started_unix_s=now_unix_s - 3600.0,
        version="0.1.0",
        control=_control(),
        connection=ConnectionState(True, now_unix_s - 3590.0, 1, ""),
        engine=EngineState("torch", "0.1.0", 2, 2, 128, 64, 16_384, ("chunk", "predictive")),
        freshness=FreshnessState(True, "input_fresh", 0.02, 0, 0, 0, ()),
        ttft=LatencyState(1.5, 90, 1.2, 0.55, 1.2, 1.7, 214),
        tpot=LatencyState(0.2, 90, 0.148, 0.092, 0.148, 0.171, 209),
        slo=SloState(
            Answer.YES, "targets_met", 0.96, 300.0, Answer.YES, "targets_feasible", "", 0.9, 0.11
        ),
        chunk=ChunkState("Predictive", "Predictive", 96, "demand_met", 16, 128, 64),
        model=ModelState(
            *(True, "model_ready", 12_840, 3, 1.02, 0.06),
            (16, 32, 64, 96, 128),
            (0.02, 0.024, 0.037, 0.051, 0.066),
            (64,),
        ),
        load=LoadState(3, 412, 9, 8, 1, 0.42, 0.38, 512.0, 742.0, (0.08, 0.14)),
        history=history,
        decisions=_decisions(now_unix_s),
    )


def late_state() -> SidecarState:
    """TTFT misses its target, and no chunk size could meet both."""
    state = busy_state()
    return replace(
        state,
        ttft=replace(state.ttft, measured_s=2.4, p90_s=2.4, p99_s=3.9),
        slo=replace(
            state.slo,
            met=Answer.NO,
            met_reason="targets_missed",
            attainment_ratio=0.71,
            feasible=Answer.NO,
            feasible_reason="targets_conflict",
            feasible_instead="TTFT 1.9 s with this TPOT target",
        ),
    )


def inactive_state(reason: str) -> SidecarState:
    """On an engine that serves and says by itself that it cannot be controlled."""
    state = busy_state()
    control = replace(
        state.control, is_effective=False, lease_left_s=0.0, holding_in_use="off", order_in_use=""
    )
    return replace(
        state,
        control=control,
        engine=EngineState("sglang", "0.4", 2, 2, 1, 1, 0, (), inactive_reason=reason),
        freshness=FreshnessState(False, "input_missing", None, 0, 0, 0, ()),
        ttft=LatencyState(1.5, 90, None, None, None, None, 0),
        tpot=LatencyState(0.2, 90, None, None, None, None, 0),
        slo=SloState(
            Answer.UNKNOWN,
            "input_missing",
            None,
            300.0,
            Answer.UNKNOWN,
            "input_missing",
            "",
            None,
            None,
        ),
        chunk=replace(state.chunk, in_use="Static", chunk_tokens=None, reason=""),
        load=_NO_LOAD,
        history=(),
        decisions=(),
    )


def empty_state() -> SidecarState:
    """A sidecar that has just started: no engine, no measurement, no decision."""
    state = busy_state()
    return replace(
        state,
        control=replace(state.control, is_effective=False, lease_left_s=None),
        connection=ConnectionState(False, NOW_UNIX_S - 3.0, 0, "no socket at /run/control"),
        engine=None,
        freshness=FreshnessState(False, "engine_disconnected", None, 0, 0, 0, ()),
        ttft=LatencyState(1.5, 90, None, None, None, None, 0),
        tpot=LatencyState(0.2, 90, None, None, None, None, 0),
        slo=SloState(
            Answer.UNKNOWN, "no_traffic", None, 300.0, Answer.UNKNOWN, "no_load", "", None, None
        ),
        chunk=replace(state.chunk, in_use="Static", chunk_tokens=None, reason=""),
        model=ModelState(False, "model_learning", 0, 0, None, None, (), (), ()),
        load=_NO_LOAD,
        history=(),
        decisions=(),
    )


def _control() -> ControlState:
    return ControlState(
        mode=Mode.ACTIVE,
        is_effective=True,
        is_superseded=False,
        lease_left_s=4.2,
        resource_name="quickstart",
        resource_uid="3f1c",
        generation=3,
        source="file",
        refused_edit="",
        holding="Auto",
        holding_in_use="e2e_first",
        order="Ageing",
        order_in_use="ageing",
    )


def _point(now_unix_s: float, age_s: int) -> HistoryPoint:
    at = 300 - age_s
    load = 0.5 + 0.35 * sin(at / 40.0) + 0.08 * sin(at / 7.0)
    is_known = not 120 <= at < 135
    return HistoryPoint(
        at_unix_s=now_unix_s - age_s,
        chunk_tokens=16 * round((32 + 90 * load) / 16) if is_known else None,
        ttft_s=0.5 + 0.9 * load if is_known else None,
        tpot_s=0.08 + 0.09 * load if is_known else None,
        demand_tokens_per_s=300.0 + 400.0 * load if is_known else None,
        capacity_tokens_per_s=480.0 + 330.0 * load if is_known else None,
        num_waiting=max(0, round(9 * load - 3)) if is_known else None,
        num_running=round(4 + 8 * load) if is_known else None,
        num_held=max(0, round(4 * load - 2)) if is_known else None,
        kv_free_ratio=0.7 - 0.4 * load if is_known else None,
    )


def _decisions(now_unix_s: float) -> tuple[DecisionState, ...]:
    def decided(age_s: float, summary: str, reason: str, *facts: tuple[str, str]) -> DecisionState:
        return DecisionState(now_unix_s - age_s, summary, reason, facts, is_sent=True)

    return (
        decided(2.1, "chunk 80 → 96 tokens", "demand_met", ("demand", "512 tokens/s")),
        decided(9.4, "chunk 64 → 80 tokens", "demand_met", ("demand", "441 tokens/s")),
        decided(31.0, "hold the oldest", "above_boundary", ("most decodes", "66")),
        decided(48.2, "chunk 96 → 64 tokens", "largest_safe_chunk", ("TPOT", "0.19 s")),
        decided(120.7, "Predictive starts", "model_ready", ("samples", "412"), ("spread", "6 %")),
        replace(decided(260.0, "chunk 64 tokens", "mode_advisory"), is_sent=False),
    )
