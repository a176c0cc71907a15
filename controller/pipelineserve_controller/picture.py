"""The sidecar's state from what its parts hold."""

from dataclasses import dataclass

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.decide import Bounds, bounds_of
from pipelineserve.policy.control.heard import EngineFacts
from pipelineserve.policy.control.histograms import Histogram
from pipelineserve.policy.control.learning import Learning
from pipelineserve.policy.control.objectives import LatencyGoal, Mode, Objectives
from pipelineserve.policy.control.observation import Observation
from pipelineserve.policy.control.turns import ControlMemory, Turn
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve_controller.chronicle import Chronicle
from pipelineserve_controller.cross_check import CrossCheck
from pipelineserve_controller.facts import feasible_instead, holding_text, order_text
from pipelineserve_controller.objectives import ObjectivesStore
from pipelineserve_controller.state import (
    ChunkState,
    ConnectionState,
    ControlState,
    EngineState,
    FreshnessState,
    LatencyState,
    LoadState,
    ModelState,
    SidecarState,
    SloState,
)
from pipelineserve_controller.watch import EngineLink


@dataclass(frozen=True, slots=True)
class Moment:
    """One turn with all that led to it; before the first, with nothing."""

    now_unix_s: float
    observation: Observation | None = None
    turn: Turn | None = None
    memory: ControlMemory | None = None
    num_lost: int = 0
    num_refused: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a sidecar that the state tells of."""

    link: EngineLink
    store: ObjectivesStore
    chronicle: Chronicle
    cross_check: CrossCheck
    started_unix_s: float
    version: str


def state_of(parts: Parts, moment: Moment) -> SidecarState:
    """Everything at one moment."""
    objectives, observation = parts.store.current, moment.observation
    learning = moment.memory.learning if moment.memory else Learning()
    return SidecarState(
        now_unix_s=moment.now_unix_s,
        started_unix_s=parts.started_unix_s,
        version=parts.version,
        control=_control(parts, moment),
        connection=_connection(parts.link),
        engine=_engine(parts.link.engine),
        freshness=_freshness(parts, moment),
        ttft=_latency(observation.ttft if observation else Histogram(), objectives, "ttft"),
        tpot=_latency(observation.tpot if observation else Histogram(), objectives, "tpot"),
        slo=_slo(moment, objectives),
        chunk=_chunk(moment, objectives, parts.link.engine),
        model=_model(learning),
        load=_load(observation),
        history=parts.chronicle.history,
        decisions=parts.chronicle.decisions,
    )


def is_effective(link: EngineLink, observation: Observation | None) -> bool:
    """Whether the policy in force in the engine was sent in this session."""
    if observation is None or observation.standing is None or link.engine is None:
        return False
    standing = observation.standing
    return standing.policy_sequence > 0 and standing.policy_epoch == link.engine.epoch


def _control(parts: Parts, moment: Moment) -> ControlState:
    store, observation = parts.store, moment.observation
    objectives = store.current
    policy = moment.turn.policy if moment.turn else None
    standing = observation.standing if observation and observation.engine else None
    return ControlState(
        mode=objectives.mode if objectives else Mode.PAUSED,
        is_effective=is_effective(parts.link, observation),
        is_superseded=parts.link.is_superseded,
        lease_left_s=standing.lease_left_s if standing else None,
        resource_name=store.resource_name,
        resource_uid=objectives.resource_uid if objectives else "",
        generation=objectives.generation if objectives else 0,
        source=store.source.value,
        refused_edit=store.refused_edit,
        holding=objectives.hold_law.value if objectives else "",
        holding_in_use=holding_text(policy) if policy else "off",
        order=objectives.order_law.value if objectives else "",
        order_in_use=order_text(policy) if policy else "",
    )


def _connection(link: EngineLink) -> ConnectionState:
    return ConnectionState(link.is_connected, link.since_unix_s, link.num_sessions, link.problem)


def _engine(engine: EngineFacts | None) -> EngineState | None:
    if engine is None:
        return None
    return EngineState(
        name=engine.name,
        version=engine.version,
        num_stages=engine.num_stages,
        num_slots=engine.num_slots,
        max_chunk_tokens=engine.max_chunk_tokens,
        static_chunk_tokens=engine.static_chunk_tokens,
        kv_tokens=engine.kv_tokens,
        capabilities=tuple(capability.value for capability in engine.capabilities),
        inactive_reason=engine.inactive_reason,
    )


def _freshness(parts: Parts, moment: Moment) -> FreshnessState:
    observation = moment.observation
    reason = observation.freshness if observation else Reason.NO_OBJECTIVES
    differences = parts.cross_check.differences
    return FreshnessState(
        is_fresh=reason is Reason.INPUT_FRESH,
        reason=reason.value,
        age_s=observation.age_s if observation else None,
        num_lost=moment.num_lost,
        num_refused=moment.num_refused,
        num_differences=len(differences),
        differences=differences,
    )


def _latency(histogram: Histogram, objectives: Objectives | None, name: str) -> LatencyState:
    goal: LatencyGoal | None = getattr(objectives, name) if objectives else None
    percentile = goal.percentile if goal else 90
    return LatencyState(
        target_s=goal.target_s if goal else None,
        percentile=percentile,
        measured_s=histogram.percentile(percentile),
        p50_s=histogram.percentile(50),
        p90_s=histogram.percentile(90),
        p99_s=histogram.percentile(99),
        num_requests=histogram.num_values,
    )


def _slo(moment: Moment, objectives: Objectives | None) -> SloState:
    observation, turn = moment.observation, moment.turn
    if observation is None or turn is None or objectives is None:
        none = Reason.NO_OBJECTIVES.value
        return SloState(Answer.UNKNOWN, none, None, 0.0, Answer.UNKNOWN, none, "", None, None)
    num = observation.num_judged
    is_no = turn.slo_feasible is Answer.NO
    verdict = turn.verdict
    return SloState(
        met=observation.slo_met,
        met_reason=observation.slo_reason.value,
        attainment_ratio=observation.num_attained / num if num else None,
        window_s=objectives.window_s,
        feasible=turn.slo_feasible,
        feasible_reason=turn.feasible_reason.value,
        feasible_instead=feasible_instead(verdict) if is_no else "",
        least_ttft_s=verdict.least_ttft_s if verdict else None,
        least_tpot_s=verdict.least_tpot_s if verdict else None,
    )


def _chunk(moment: Moment, objectives: Objectives | None, engine: EngineFacts | None) -> ChunkState:
    step = moment.observation.last_step if moment.observation else None
    policy = moment.turn.policy if moment.turn else None
    bounds = _bounds(objectives, engine)
    return ChunkState(
        policy=objectives.chunk_law.value if objectives else "",
        in_use=_law_in_use(policy, objectives),
        chunk_tokens=step.chunk_tokens if step else None,
        reason=step.chunk_reason if step else "",
        min_tokens=bounds.min_tokens,
        max_tokens=bounds.max_tokens,
        static_tokens=bounds.static_tokens,
    )


def _bounds(objectives: Objectives | None, engine: EngineFacts | None) -> Bounds:
    if objectives is None:
        return Bounds(0, 0, 0, 0)
    if engine is not None:
        return bounds_of(objectives, engine)
    given = objectives
    return Bounds(given.min_tokens, given.max_tokens, given.step_tokens, given.static_tokens)


def _law_in_use(policy: SchedulingPolicy | None, objectives: Objectives | None) -> str:
    if policy is None or objectives is None:
        return "Static"
    match policy.chunking:
        case Predictive():
            return "Predictive"
        case Static(reason=Reason.MODEL_LEARNING | Reason.MODEL_SIZES_TOO_FEW):
            return "Static while learning"
        case Static(reason=Reason.EXPLORING_CHUNK):
            return "Exploring"
        case Static():
            return "Static" if objectives.chunk_law.value == "Static" else "Greedy"


def _model(learning: Learning) -> ModelState:
    model = learning.model
    return ModelState(
        is_ready=learning.is_ready,
        reason=learning.readiness.value,
        num_samples=learning.num_samples,
        num_refused=learning.num_refused,
        feedback_ratio=model.feedback_ratio if model else None,
        spread_ratio=model.spread_ratio if model else None,
        table_tokens=model.table.tokens if model else (),
        table_times_s=model.table.times_s if model else (),
        boundaries=learning.boundaries,
    )


def _load(observation: Observation | None) -> LoadState:
    standing = observation.standing if observation else None
    bubbles = observation.bubble_ratios if observation else ()
    if standing is None:
        return LoadState(None, None, None, None, None, None, None, None, None, bubbles)
    return LoadState(
        num_waiting=standing.num_waiting,
        waiting_tokens=standing.waiting_tokens,
        num_running=standing.num_running,
        num_decoding=standing.num_decoding,
        num_held=standing.num_held,
        oldest_wait_s=standing.oldest_wait_s,
        kv_free_ratio=standing.kv_free_ratio,
        demand_tokens_per_s=standing.demand_tokens_per_s,
        # 0 is what an engine says before its first micro-batch: it is not known yet.
        capacity_tokens_per_s=standing.capacity_tokens_per_s or None,
        bubble_ratio_per_stage=bubbles,
    )
