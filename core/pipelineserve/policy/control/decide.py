"""What the controller would send now: one pure decision for all laws of the resource."""

from dataclasses import dataclass, field, replace

from pipelineserve.policy.candidates import candidate_sizes
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.feasibility import Pipeline, Targets, Verdict, judge
from pipelineserve.policy.control.guards import ModeGuard, ModeMemory
from pipelineserve.policy.control.heard import Capability, EngineFacts
from pipelineserve.policy.control.hold_modes import AutoHoldMode
from pipelineserve.policy.control.learning import Learning
from pipelineserve.policy.control.objectives import (
    ChunkLaw,
    HoldLaw,
    LatencyGoal,
    Objectives,
    OrderLaw,
)
from pipelineserve.policy.control.observation import Observation
from pipelineserve.policy.greedy import Greedy, GreedyMemory, LatencyView
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.triage import Triage

# A greedy step shows in what is measured only after a while.
GREEDY_PERIOD_S = 1.0
EXPLORING_DWELL_S = 3.0
VERDICT_PERIOD_S = 2.0
_VERDICT_GUARD = ModeGuard(settle_s=6.0)
# Sizes are tried only where latencies leave this much room.
_EXPLORING_TPOT_RATIO = 0.7
_EXPLORING_WAIT_RATIO = 0.5
_LEAST_KV_FREE_RATIO = 0.1
# A prediction is trusted up to this far beyond what was measured.
_REACH_RATIO = 1.5
_HORIZON_RATIO = 0.2
_DEFAULT_HORIZON_S = 0.4
_LEAST_HORIZON_S = 0.05
_TOKENS_PER_TARGET = 1000.0
_HOLD_BUDGET_GAPS = 5.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Chunk sizes that may be chosen on this engine: the user's, within the engine's ceiling."""

    min_tokens: int
    max_tokens: int
    step_tokens: int
    static_tokens: int


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a decision follows from, but for its memory."""

    observation: Observation
    learning: Learning
    objectives: Objectives
    engine: EngineFacts

    @property
    def bounds(self) -> Bounds:
        """The chunk sizes that may be chosen."""
        return bounds_of(self.objectives, self.engine)


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure that a decision rests on; the name ends with its unit."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Feasibility:
    """Whether the targets can be met, as last judged.

    Attributes:
        answer: settled: another one must stand for some seconds first.
        reason: of the latest verdict.
        verdict: the latest; None before the first.
        judged_at_s: when that was.
    """

    answer: ModeMemory[Answer] = field(default_factory=lambda: ModeMemory(Answer.UNKNOWN))
    reason: Reason = Reason.MODEL_LEARNING
    verdict: Verdict | None = None
    judged_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class DecideMemory:
    """What is kept between two decisions.

    Attributes:
        greedy: None while another law holds.
        greedy_at_s: when it was last asked.
        greedy_reason: what it said.
        hold_mode: of Auto.
        exploring_since_s: None while no sizes are tried.
    """

    greedy: GreedyMemory | None = None
    greedy_at_s: float | None = None
    greedy_reason: Reason = Reason.NO_MEASUREMENT
    hold_mode: HoldMode = HoldMode.E2E_FIRST
    exploring_since_s: float | None = None
    feasibility: Feasibility = field(default_factory=Feasibility)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to send before guards, why, and by which figures."""

    policy: SchedulingPolicy
    reason: Reason
    facts: tuple[Fact, ...]


def bounds_of(objectives: Objectives, engine: EngineFacts) -> Bounds:
    """The sizes that hold on this engine."""
    most = min(objectives.max_tokens, engine.max_chunk_tokens)
    least = min(objectives.min_tokens, most)
    static = max(least, min(objectives.static_tokens, most))
    return Bounds(least, most, objectives.step_tokens, static)


def decide(memory: DecideMemory, situation: Situation) -> tuple[Proposal, DecideMemory]:
    """Decide from a fresh observation, whose standing is therefore known."""
    chunking, reason, memory = _chunking(memory, situation)
    holding, memory = _holding(memory, situation)
    memory = replace(memory, feasibility=_feasibility(memory.feasibility, situation))
    policy = SchedulingPolicy(chunking, order_of(situation.objectives, situation.engine), holding)
    return Proposal(policy, reason, _facts(situation)), memory


def order_of(objectives: Objectives, engine: EngineFacts) -> Arrival | Ageing | Triage:
    """The order of the queue; without a target to be late for, Ageing is nearest to Triage.

    A token is worth as much waiting as lets a thousand of them weigh like the TTFT target.
    """
    if Capability.ORDER not in engine.capabilities:
        return Arrival()
    match objectives.order_law:
        case OrderLaw.ARRIVAL:
            return Arrival()
        case OrderLaw.TRIAGE if objectives.ttft is not None:
            return Triage(objectives.ttft.target_s, objectives.late_share_ratio)
        case OrderLaw.AGEING | OrderLaw.TRIAGE:
            if objectives.ttft is None:
                return Ageing()
            return Ageing(min(10.0, objectives.ttft.target_s / _TOKENS_PER_TARGET))


def _chunking(
    memory: DecideMemory, situation: Situation
) -> tuple[Static | Predictive, Reason, DecideMemory]:
    bounds, engine = situation.bounds, situation.engine
    if Capability.CHUNK not in engine.capabilities:
        static = Static(bounds.static_tokens, Reason.ENGINE_LACKS_CHUNK)
        return static, Reason.ENGINE_LACKS_CHUNK, memory
    match situation.objectives.chunk_law:
        case ChunkLaw.STATIC:
            return Static(bounds.static_tokens), Reason.STATIC_CHUNK, replace(memory, greedy=None)
        case ChunkLaw.GREEDY:
            return _greedy(memory, situation)
        case ChunkLaw.PREDICTIVE if Capability.PREDICTIVE in engine.capabilities:
            memory = replace(memory, greedy=None)
            return _predictive(memory, situation)
        case ChunkLaw.PREDICTIVE:
            # Greedy needs nothing of the engine but a chunk that can be set.
            static, _, memory = _greedy(memory, situation)
            return static, Reason.ENGINE_LACKS_PREDICTIVE, memory


def _greedy(memory: DecideMemory, situation: Situation) -> tuple[Static, Reason, DecideMemory]:
    """One greedy step if one is due; KV pressure does not wait for that."""
    observation, objectives, bounds = situation.observation, situation.objectives, situation.bounds
    standing = observation.standing
    policy = Greedy(
        min_tokens=bounds.min_tokens,
        max_tokens=bounds.max_tokens,
        step_tokens=bounds.step_tokens,
        ttft_target_s=_target_s(objectives.ttft),
        tpot_target_s=_target_s(objectives.tpot),
    )
    # The engine runs on the static chunk until told otherwise: begin where it is.
    greedy = memory.greedy or GreedyMemory(bounds.static_tokens)
    period_s = max(GREEDY_PERIOD_S, observation.cycle_s)
    last_s = memory.greedy_at_s if memory.greedy else None
    is_due = last_s is None or observation.now_s - last_s >= period_s
    is_pressed = (
        standing is not None
        and greedy.restore_tokens is None
        and standing.kv_free_ratio < policy.least_kv_free_ratio
    )
    if standing is None or not (is_due or is_pressed):
        static = Static(greedy.chunk_tokens, memory.greedy_reason)
        return static, memory.greedy_reason, replace(memory, greedy=greedy)
    view = LatencyView(
        ttft_s=observation.recent_ttft_s,
        tpot_s=observation.recent_tpot_s,
        oldest_wait_s=standing.oldest_wait_s,
        most_decodes=standing.most_decodes,
        kv_free_ratio=standing.kv_free_ratio,
        max_chunk_tokens=bounds.max_tokens,
    )
    decision, greedy = policy.decide(greedy, view)
    memory = replace(
        memory, greedy=greedy, greedy_at_s=observation.now_s, greedy_reason=decision.reason
    )
    return Static(decision.chunk_tokens, decision.reason), decision.reason, memory


def _predictive(
    memory: DecideMemory, situation: Situation
) -> tuple[Static | Predictive, Reason, DecideMemory]:
    learning, objectives = situation.learning, situation.objectives
    if not learning.is_ready or learning.model is None:
        return _learning_chunk(memory, situation)
    overhead_s = cycle_overhead_s(learning, objectives)
    policy = Predictive(
        model=learning.model,
        candidates=reachable_sizes(learning, situation.bounds),
        tpot_target_s=_target_s(objectives.tpot),
        horizon_s=_horizon_s(objectives.ttft),
        step_overhead_s=overhead_s / situation.engine.num_slots,
        cycle_overhead_s=overhead_s,
    )
    return policy, Reason.MODEL_READY, replace(memory, exploring_since_s=None)


def reachable_sizes(learning: Learning, bounds: Bounds) -> tuple[int, ...]:
    """Candidates as far as the model can be trusted; the static chunk always is one of its reach.

    The largest grows as larger micro-batches are measured, so that the model is tried step by step.
    """
    reach = max(bounds.static_tokens, int(_REACH_RATIO * learning.largest_tokens))
    most = max(bounds.min_tokens, min(bounds.max_tokens, reach))
    return candidate_sizes(bounds.min_tokens, most, bounds.step_tokens)


def cycle_overhead_s(learning: Learning, objectives: Objectives) -> float:
    """The measured overhead; half of the TPOT target at most, or no step would seem fast enough."""
    target_s = _target_s(objectives.tpot)
    measured_s = learning.cycle_overhead_s
    return measured_s if target_s is None else min(measured_s, 0.5 * target_s)


def _horizon_s(ttft: LatencyGoal | None) -> float:
    if ttft is None:
        return _DEFAULT_HORIZON_S
    return max(_LEAST_HORIZON_S, _HORIZON_RATIO * ttft.target_s)


def _learning_chunk(
    memory: DecideMemory, situation: Situation
) -> tuple[Static, Reason, DecideMemory]:
    """The static chunk, and other sizes for some seconds each if only their variety is lacking."""
    observation, objectives, bounds = situation.observation, situation.objectives, situation.bounds
    reason = situation.learning.readiness
    static = Static(bounds.static_tokens, reason)
    if reason is not Reason.MODEL_SIZES_TOO_FEW or not _is_loaded(observation, bounds):
        return static, reason, replace(memory, exploring_since_s=None)
    since_s = memory.exploring_since_s
    if since_s is None:
        return static, reason, replace(memory, exploring_since_s=observation.now_s)
    turn = int((observation.now_s - since_s) / EXPLORING_DWELL_S) % 4
    can_shrink, can_grow = _can_shrink(observation, objectives), _can_grow(observation, objectives)
    tried = {
        1: max(bounds.min_tokens, bounds.static_tokens // 2) if can_shrink else None,
        2: max(bounds.min_tokens, bounds.static_tokens // 4) if can_shrink else None,
        3: min(bounds.max_tokens, bounds.static_tokens * 3 // 2) if can_grow else None,
    }.get(turn)
    if tried is None:
        return static, reason, memory
    return Static(tried, Reason.EXPLORING_CHUNK), Reason.EXPLORING_CHUNK, memory


def _is_loaded(observation: Observation, bounds: Bounds) -> bool:
    """Whether prompts fill chunks now, so that another chunk gives another size to measure."""
    step, standing = observation.last_step, observation.standing
    if step is None or standing is None:
        return False
    return standing.waiting_tokens > 0 and step.num_tokens * 2 > bounds.min_tokens


def _can_shrink(observation: Observation, objectives: Objectives) -> bool:
    standing, ttft = observation.standing, objectives.ttft
    if standing is None:
        return False
    return ttft is None or standing.oldest_wait_s <= _EXPLORING_WAIT_RATIO * ttft.target_s


def _can_grow(observation: Observation, objectives: Objectives) -> bool:
    standing, tpot = observation.standing, objectives.tpot
    if standing is None or standing.kv_free_ratio < _LEAST_KV_FREE_RATIO:
        return False
    if tpot is None:
        return True
    limit_s = _EXPLORING_TPOT_RATIO * tpot.target_s
    return max(observation.recent_tpot_s or 0.0, observation.cycle_s) <= limit_s


def _holding(
    memory: DecideMemory, situation: Situation
) -> tuple[Rebalance | HoldNothing, DecideMemory]:
    """Nothing is held without a model to tell what holding gains."""
    learning, objectives, engine = situation.learning, situation.objectives, situation.engine
    match objectives.hold_law:
        case HoldLaw.OFF:
            return HoldNothing(), memory
        case HoldLaw.TPOT_FIRST:
            mode = HoldMode.TPOT_FIRST
        case HoldLaw.E2E_FIRST:
            mode = HoldMode.E2E_FIRST
        case HoldLaw.AUTO:
            auto = AutoHoldMode(_target_s(objectives.tpot))
            mode = auto.decide(memory.hold_mode, situation.observation.recent_tpot_s)
            memory = replace(memory, hold_mode=mode)
    can_hold = Capability.HOLD in engine.capabilities and engine.num_slots > 1
    if not can_hold or not learning.is_ready or learning.model is None:
        return HoldNothing(), memory
    holding = Rebalance(
        mode=mode,
        model=learning.model,
        boundaries=tuple(size for size in learning.boundaries if size <= engine.max_chunk_tokens),
        max_gap_s=objectives.max_gap_s,
        hold_budget_s=_HOLD_BUDGET_GAPS * objectives.max_gap_s,
    )
    return holding, memory


def _feasibility(memory: Feasibility, situation: Situation) -> Feasibility:
    """Judge anew every few seconds; a verdict that flickers is none."""
    now_s = situation.observation.now_s
    if memory.judged_at_s is not None and now_s - memory.judged_at_s < VERDICT_PERIOD_S:
        return memory
    verdict = _verdict(situation)
    if verdict is None:
        is_ready = situation.learning.is_ready
        reason = Reason.NO_TRAFFIC if is_ready else situation.learning.readiness
        return Feasibility(reason=reason, judged_at_s=now_s)
    answer = Answer.of(verdict.is_feasible)
    if memory.answer.mode is Answer.UNKNOWN:
        settled = ModeMemory(answer)
    else:
        _, settled = _VERDICT_GUARD.decide(memory.answer, answer, now_s)
    return Feasibility(settled, verdict.reason, verdict, now_s)


def _verdict(situation: Situation) -> Verdict | None:
    """None without a model to judge by, or without a load."""
    learning, engine, load = situation.learning, situation.engine, situation.observation.load
    if not learning.is_ready or learning.model is None or load is None:
        return None
    pipeline = Pipeline(
        model=learning.model,
        candidates=reachable_sizes(learning, situation.bounds),
        num_slots=engine.num_slots,
        kv_tokens=max(1, engine.kv_tokens),
        cycle_overhead_s=cycle_overhead_s(learning, situation.objectives),
    )
    return judge(pipeline, load, _targets(situation.objectives))


def _targets(objectives: Objectives) -> Targets:
    return Targets(
        ttft_s=_target_s(objectives.ttft),
        tpot_s=_target_s(objectives.tpot),
        ttft_percentile=float(objectives.ttft.percentile) if objectives.ttft else 90.0,
    )


def _target_s(goal: LatencyGoal | None) -> float | None:
    return None if goal is None else goal.target_s


def _facts(situation: Situation) -> tuple[Fact, ...]:
    """What was known; what was not is left out."""
    observation, learning = situation.observation, situation.learning
    standing = observation.standing
    found: list[tuple[str, float | None]] = [
        ("recent_ttft_s", observation.recent_ttft_s),
        ("recent_tpot_s", observation.recent_tpot_s),
        ("oldest_wait_s", standing.oldest_wait_s if standing else None),
        ("waiting_tokens", standing.waiting_tokens if standing else None),
        ("kv_free_ratio", standing.kv_free_ratio if standing else None),
        ("num_samples", learning.num_samples),
        ("feedback_ratio", learning.model.feedback_ratio if learning.model else None),
        ("spread_ratio", learning.model.spread_ratio if learning.model else None),
        ("cycle_overhead_s", cycle_overhead_s(learning, situation.objectives)),
    ]
    return tuple(Fact(name, float(value)) for name, value in found if value is not None)
