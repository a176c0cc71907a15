"""One turn of the controller, whole and pure: observe, learn, decide, guard.

The same memory, the same things heard and the same objectives give the same turn and the same
memory, so that a journal of the inputs can be replayed, here or on a twin's virtual time.
"""

from dataclasses import dataclass, field, replace

from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.decide import (
    DecideMemory,
    Fact,
    Feasibility,
    Situation,
    bounds_of,
    decide,
)
from pipelineserve.policy.control.feasibility import Verdict
from pipelineserve.policy.control.guard import Guarded, SentMemory, hold_safe, let_pass
from pipelineserve.policy.control.heard import Capability, Heard
from pipelineserve.policy.control.learning import Learning, learn
from pipelineserve.policy.control.objectives import Mode, Objectives
from pipelineserve.policy.control.observation import Observation, ObservationMemory, observe
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.scheduling import SchedulingPolicy


@dataclass(frozen=True, slots=True)
class ControlMemory:
    """Everything that is kept between two turns."""

    observation: ObservationMemory = field(default_factory=ObservationMemory)
    learning: Learning = field(default_factory=Learning)
    decide: DecideMemory = field(default_factory=DecideMemory)
    sent: SentMemory = field(default_factory=SentMemory)
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of one turn.

    Attributes:
        policy: to be in force now; None: none of ours.
        is_to_send: whether it goes to the engine; a policy that does not is only shown.
        lease_s: for how long.
        static_chunk_tokens: what is to come back when that has ended; None: the engine is away.
        reason: why.
        facts: figures that it rests on.
        slo_feasible: whether the targets can be met.
        feasible_reason: why, or what is in the way.
        verdict: all of it; None if nothing could be judged.
    """

    policy: SchedulingPolicy | None
    is_to_send: bool
    lease_s: float
    static_chunk_tokens: int | None
    reason: Reason
    facts: tuple[Fact, ...]
    slo_feasible: Answer
    feasible_reason: Reason
    verdict: Verdict | None


def remembered(memory: ControlMemory, now_s: float) -> ControlMemory:
    """What of a run that has ended the next one begins with: the step-time model, and whose it is.

    If the engine that is there differs in more than its session, the first turn with it forgets
    both, as it does for any other engine.

    Args:
        memory: after the last turn of the run.
        now_s: the clock that the next run's turns are timed by.
    """
    learning = replace(memory.learning, refitted_at_s=now_s)
    return ControlMemory(ObservationMemory(engine=memory.observation.engine), learning)


def take_turn(
    memory: ControlMemory, heard: Heard, objectives: Objectives
) -> tuple[Turn, Observation, ControlMemory]:
    """Observe, learn, decide and guard."""
    observation, seen = observe(memory.observation, heard, objectives)
    if observation.is_new_engine:
        memory = ControlMemory(mode=memory.mode)
    if objectives.mode is not memory.mode:
        # What is in force has changed by itself: the engine runs on its static chunk, or did.
        memory = replace(
            memory,
            mode=objectives.mode,
            sent=SentMemory(),
            decide=DecideMemory(feasibility=memory.decide.feasibility),
        )
    num_slots = observation.engine.num_slots if observation.engine else 1
    learning = learn(memory.learning, heard.steps, heard.now_s, num_slots=num_slots)
    memory = replace(memory, observation=seen, learning=learning)
    guarded, facts, memory = _guarded(memory, observation, objectives)
    return _turn(guarded, facts, memory, observation, objectives), observation, memory


def _guarded(
    memory: ControlMemory, observation: Observation, objectives: Objectives
) -> tuple[Guarded, tuple[Fact, ...], ControlMemory]:
    engine = observation.engine
    if objectives.mode is Mode.PAUSED:
        return Guarded(None, Reason.MODE_PAUSED), (), memory
    if engine is None or not observation.is_fresh:
        bounds = bounds_of(objectives, engine) if engine else None
        guarded, sent = hold_safe(memory.sent, observation, objectives, bounds)
        return guarded, (), replace(memory, sent=sent)
    situation = Situation(observation, memory.learning, objectives, engine)
    proposal, deciding = decide(memory.decide, situation)
    guarded, sent = let_pass(memory.sent, proposal, observation, objectives, situation.bounds)
    return guarded, proposal.facts, replace(memory, decide=deciding, sent=sent)


def _turn(
    guarded: Guarded,
    facts: tuple[Fact, ...],
    memory: ControlMemory,
    observation: Observation,
    objectives: Objectives,
) -> Turn:
    feasibility = _current(memory.decide.feasibility, observation)
    return Turn(
        policy=guarded.policy,
        is_to_send=(
            guarded.policy is not None
            and objectives.mode is Mode.ACTIVE
            and observation.engine is not None
            and Capability.CHUNK in observation.engine.capabilities
        ),
        lease_s=objectives.lease_s,
        static_chunk_tokens=(
            bounds_of(objectives, observation.engine).static_tokens if observation.engine else None
        ),
        reason=guarded.reason,
        facts=facts,
        slo_feasible=feasibility.answer.mode,
        feasible_reason=feasibility.reason,
        verdict=feasibility.verdict,
    )


def _current(feasibility: Feasibility, observation: Observation) -> Feasibility:
    """A verdict that rests on input which is not to be trusted is none."""
    if observation.freshness in (Reason.INPUT_FRESH, Reason.INPUT_RECOVERING):
        return feasibility
    return Feasibility(reason=observation.freshness)
