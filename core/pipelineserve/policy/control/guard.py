"""What may be sent: proposals in bounded steps, and the last safe policy while input is bad."""

from dataclasses import dataclass, replace
from math import inf

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.decide import Bounds, Proposal
from pipelineserve.policy.control.guards import GuardMemory, ModeGuard, ModeMemory, NumberGuard
from pipelineserve.policy.control.objectives import ChunkLaw, HoldLaw, Objectives
from pipelineserve.policy.control.observation import Observation
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.step_time import StepFeatures, StepTimeModel

MODEL_PERIOD_S = 1.0
# Predictions that differ by less are the same; one change goes no further than the second.
MODEL_HYSTERESIS_RATIO = 0.02
MOST_MODEL_RATIO = 1.25
# Of the TPOT target: what a cycle takes beyond its steps is measured anew with each of them, and so
# small a change moves a step's bound by less than its prediction is off.
OVERHEAD_HYSTERESIS_RATIO = 0.01
_HOLD_GUARD = ModeGuard(settle_s=2.0)
_CHUNK_PERIOD_S = 0.5
# These go where they must at once: too little KV, no room, the user's word, a size to be tried.
_FREE_REASONS = frozenset(
    {
        Reason.KV_PRESSURE,
        Reason.KV_PRESSURE_OVER,
        Reason.ROOM_FOR_DECODES,
        Reason.STATIC_CHUNK,
        Reason.EXPLORING_CHUNK,
        Reason.MODEL_LEARNING,
        Reason.MODEL_SIZES_TOO_FEW,
        Reason.MODEL_UNRELIABLE,
        Reason.ENGINE_LACKS_CHUNK,
    }
)


@dataclass(frozen=True, slots=True)
class SentMemory:
    """What was let pass before.

    Attributes:
        safe: the last policy that rested on fresh input; None: none has, or it is too old.
        fresh_at_s: when input was last fresh.
        chunk: the fixed chunk; None while none is sent.
        model: the step-time model that was let pass.
        model_changed_at_s: when it was last changed.
        is_model_limited: it is on its way to one that is further off than a change may go.
        hold_mode: of Auto, with what is proposed instead.
    """

    safe: SchedulingPolicy | None = None
    fresh_at_s: float | None = None
    chunk: GuardMemory | None = None
    model: StepTimeModel | None = None
    model_changed_at_s: float = 0.0
    is_model_limited: bool = False
    hold_mode: ModeMemory[HoldMode] | None = None


@dataclass(frozen=True, slots=True)
class Guarded:
    """What to hold in force, and why it is that; None: nothing, so that a lease may end."""

    policy: SchedulingPolicy | None
    reason: Reason


def hold_safe(
    memory: SentMemory, observation: Observation, objectives: Objectives, bounds: Bounds | None
) -> tuple[Guarded, SentMemory]:
    """The last safe policy, since input cannot be followed now; for `stale_s` at most.

    Bounds that the user has changed meanwhile hold all the same.
    """
    if memory.fresh_at_s is None or bounds is None:
        return Guarded(None, observation.freshness), memory
    if memory.safe is None or observation.now_s - memory.fresh_at_s > objectives.stale_s:
        is_back = observation.freshness is Reason.INPUT_RECOVERING
        reason = observation.freshness if is_back else Reason.LEASE_LEFT_TO_END
        return Guarded(None, reason), replace(memory, safe=None, chunk=None)
    chunking = _within(memory.safe.chunking, objectives, bounds)
    return Guarded(replace(memory.safe, chunking=chunking), observation.freshness), memory


def let_pass(
    memory: SentMemory,
    proposal: Proposal,
    observation: Observation,
    objectives: Objectives,
    bounds: Bounds,
) -> tuple[Guarded, SentMemory]:
    """A proposal that rests on fresh input, as far as it may go in one turn."""
    reason, now_s = proposal.reason, observation.now_s
    model = _model_of(proposal.policy)
    if model is not None:
        model, model_reason = _guarded_model(memory, model, observation, bounds)
        if model is not memory.model:
            memory = replace(memory, model=model, model_changed_at_s=now_s)
        is_limited = model_reason is Reason.GUARD_STEP_LIMITED or (
            # One step on the way is not the end of it.
            model_reason is Reason.GUARD_TOO_SOON and memory.is_model_limited
        )
        memory = replace(memory, is_model_limited=is_limited)
        reason = Reason.GUARD_STEP_LIMITED if is_limited else reason
    chunking = proposal.policy.chunking
    match chunking:
        case Static():
            chunking, chunk_reason, memory = _guarded_chunk(
                memory, chunking, observation, objectives, bounds
            )
            reason = reason if chunk_reason is Reason.GUARD_PASSED else chunk_reason
        case Predictive():
            chunking = replace(chunking, model=model or chunking.model)
            chunking = _with_steady_overheads(memory.safe, chunking)
            memory = replace(memory, chunk=None)
    holding, memory = _guarded_holding(memory, proposal.policy.holding, objectives, model, now_s)
    policy = SchedulingPolicy(chunking, proposal.policy.order, holding)
    return Guarded(policy, reason), replace(memory, safe=policy, fresh_at_s=now_s)


def _with_steady_overheads(safe: SchedulingPolicy | None, proposed: Predictive) -> Predictive:
    """Those of the last policy if these hardly differ, or each turn would send another one."""
    before = safe.chunking if safe else None
    if not isinstance(before, Predictive):
        return proposed
    change_s = abs(proposed.cycle_overhead_s - before.cycle_overhead_s)
    target_s = proposed.tpot_target_s
    if target_s is not None and change_s > OVERHEAD_HYSTERESIS_RATIO * target_s:
        return proposed
    return replace(
        proposed,
        step_overhead_s=before.step_overhead_s,
        cycle_overhead_s=before.cycle_overhead_s,
    )


def _within(
    chunking: Static | Predictive, objectives: Objectives, bounds: Bounds
) -> Static | Predictive:
    if objectives.chunk_law is ChunkLaw.STATIC:
        return Static(bounds.static_tokens)
    match chunking:
        case Static(chunk_tokens):
            inside = max(bounds.min_tokens, min(chunk_tokens, bounds.max_tokens))
            return replace(chunking, chunk_tokens=inside)
        case Predictive(candidates=sizes):
            least, most = bounds.min_tokens, bounds.max_tokens
            inside_sizes = tuple(size for size in sizes if least <= size <= most)
            return replace(chunking, candidates=inside_sizes or (bounds.static_tokens,))


def _guarded_chunk(
    memory: SentMemory,
    proposed: Static,
    observation: Observation,
    objectives: Objectives,
    bounds: Bounds,
) -> tuple[Static, Reason, SentMemory]:
    is_free = proposed.reason in _FREE_REASONS or objectives.chunk_law is ChunkLaw.STATIC
    ramped = max(1.0, observation.recovering_ratio * bounds.step_tokens)
    guard = NumberGuard(
        least=bounds.min_tokens,
        most=bounds.max_tokens,
        largest_step=inf if is_free else ramped,
        least_period_s=0.0 if is_free else _CHUNK_PERIOD_S,
    )
    # Without a chunk of ours the engine runs on its static one.
    before = memory.chunk or GuardMemory(bounds.static_tokens)
    decision, after = guard.decide(before, proposed.chunk_tokens, observation.now_s)
    reason = decision.reason
    if reason is Reason.GUARD_TOO_SMALL:
        # With no hysteresis this means that nothing was to change.
        reason = Reason.GUARD_PASSED
    sent = Static(int(decision.value), proposed.reason if reason is Reason.GUARD_PASSED else reason)
    return sent, reason, replace(memory, chunk=after)


def _guarded_model(
    memory: SentMemory, proposed: StepTimeModel, observation: Observation, bounds: Bounds
) -> tuple[StepTimeModel, Reason]:
    """The model to send: the one before if nothing changed much, never one that jumps far."""
    old = memory.model
    if old is None:
        return proposed, Reason.GUARD_PASSED
    features = observation.last_step.features if observation.last_step else StepFeatures()
    sizes = (bounds.min_tokens, bounds.static_tokens, bounds.max_tokens)
    ratios = [proposed.predict_s(size, features) / old.predict_s(size, features) for size in sizes]
    furthest = max(max(ratio, 1.0 / ratio) for ratio in ratios)
    is_same_spread = abs(proposed.spread_ratio - old.spread_ratio) <= MODEL_HYSTERESIS_RATIO
    if furthest - 1.0 <= MODEL_HYSTERESIS_RATIO and is_same_spread:
        return old, Reason.GUARD_TOO_SMALL
    if observation.now_s - memory.model_changed_at_s < MODEL_PERIOD_S:
        return old, Reason.GUARD_TOO_SOON
    # While input recovers it counts less, but it counts, or nothing could ever be put right.
    most = MOST_MODEL_RATIO ** max(0.2, observation.recovering_ratio)
    middle = sorted(ratios)[1]
    bounded = min(most, max(1.0 / most, middle))
    if bounded == middle:
        return proposed, Reason.GUARD_PASSED
    feedback = proposed.feedback_ratio * bounded / middle
    return replace(proposed, feedback_ratio=feedback), Reason.GUARD_STEP_LIMITED


def _guarded_holding(
    memory: SentMemory,
    proposed: Rebalance | HoldNothing,
    objectives: Objectives,
    model: StepTimeModel | None,
    now_s: float,
) -> tuple[Rebalance | HoldNothing, SentMemory]:
    """Auto changes its mind only after a while; what the user names holds at once."""
    match proposed:
        case HoldNothing():
            return proposed, replace(memory, hold_mode=None)
        case Rebalance():
            holding = replace(proposed, model=model or proposed.model)
            if objectives.hold_law is not HoldLaw.AUTO:
                return holding, replace(memory, hold_mode=None)
            before = memory.hold_mode or ModeMemory(proposed.mode)
            decision, after = _HOLD_GUARD.decide(before, proposed.mode, now_s)
            return replace(holding, mode=decision.mode), replace(memory, hold_mode=after)


def _model_of(policy: SchedulingPolicy) -> StepTimeModel | None:
    match policy.chunking:
        case Predictive(model=model):
            return model
        case Static():
            pass
    match policy.holding:
        case Rebalance(model=model):
            return model
        case HoldNothing():
            return None
