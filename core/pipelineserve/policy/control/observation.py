"""From what was heard, turn after turn, to what is known now and how far it can be trusted."""

from dataclasses import dataclass, field, replace

from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.feasibility import Load
from pipelineserve.policy.control.heard import EngineFacts, Heard, Standing, StepSeen
from pipelineserve.policy.control.histograms import Histogram
from pipelineserve.policy.control.objectives import LatencyGoal, Objectives
from pipelineserve.policy.control.windows import Window
from pipelineserve.policy.reasons import Reason

# The engine tells how it stands every second even when nothing happens.
STALE_AFTER_S = 3.0
# Work that makes no step for this long, and for many cycles, counts as a frozen input.
FROZEN_AFTER_S = 10.0
_FROZEN_CYCLES = 20.0
# Good input must last this long before it is followed again.
RECOVERY_S = 2.0
RECENT_S = 10.0
_BUBBLE_HALF_LIFE_S = 5.0


@dataclass(frozen=True, slots=True)
class ObservationMemory:
    """What is kept between two turns; times are of the controller's clock but where said.

    Attributes:
        engine: of the latest session.
        standing: the latest one heard; None before the first, and after a reset.
        heard_at_s: when the engine last told how it stands.
        clock_moved_at_s: when the engine's clock was last seen to go on.
        stepped_at_s: when a micro-batch last came out, or work was last seen to begin.
        bad_at_s: when the input was last not fresh; None: never.
        targets: those that the window's attainment was judged by.
        window: over which targets are judged.
        recent: the last seconds, which control follows.
        cycle_s: mean span of a micro-batch, lately.
        context_tokens: mean context of a decode, lately.
        busy_s: per stage, sums that fade; `bubble_s` likewise.
    """

    engine: EngineFacts | None = None
    standing: Standing | None = None
    heard_at_s: float | None = None
    clock_moved_at_s: float = 0.0
    stepped_at_s: float = 0.0
    bad_at_s: float | None = None
    turned_at_s: float | None = None
    targets: tuple[LatencyGoal | None, ...] = ()
    window: Window = field(default_factory=lambda: Window(0.0))
    recent: Window = field(default_factory=lambda: Window(RECENT_S))
    last_step: StepSeen | None = None
    cycle_s: float = 0.0
    context_tokens: float = 0.0
    busy_s: tuple[float, ...] = ()
    bubble_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known now.

    Attributes:
        freshness: INPUT_FRESH, or why decisions must not follow what is measured.
        recovering_ratio: 0 right after bad input up to 1 long after it.
        is_new_engine: the engine is not the one of the turn before.
        standing: the latest; None: nothing was heard, which is never read as 0.
        ttft: over the window of the targets.
        tpot: over that window, held time included.
        recent_ttft_s: over the last seconds at the target's percentile; None without any.
        recent_tpot_s: of those that decode now, at the nearest percentile told, or else of those
            that ended lately; None without any.
        load: over the window; None without requests.
        slo_met: whether both percentiles were within their targets.
        bubble_ratios: idle share of each stage while there was work, lately.
    """

    now_s: float
    freshness: Reason
    age_s: float | None
    recovering_ratio: float
    is_new_engine: bool
    engine: EngineFacts | None
    standing: Standing | None
    last_step: StepSeen | None
    ttft: Histogram
    tpot: Histogram
    recent_ttft_s: float | None
    recent_tpot_s: float | None
    load: Load | None
    num_judged: int
    num_attained: int
    slo_met: Answer
    slo_reason: Reason
    cycle_s: float
    bubble_ratios: tuple[float, ...]

    @property
    def is_fresh(self) -> bool:
        """Whether decisions may follow what is measured."""
        return self.freshness is Reason.INPUT_FRESH


def observe(
    memory: ObservationMemory, heard: Heard, objectives: Objectives
) -> tuple[Observation, ObservationMemory]:
    """Take in what was heard."""
    is_new_engine = _is_other_engine(memory.engine, heard.engine)
    if is_new_engine:
        # Nothing of another engine tells anything about this one.
        memory = ObservationMemory(bad_at_s=memory.bad_at_s)
    is_reset = _is_reset(memory, heard)
    if is_reset:
        memory = replace(memory, standing=None, recent=Window(RECENT_S), last_step=None)
    before = memory.standing
    memory = _with_clocks(memory, heard)
    memory = _with_steps(memory, heard)
    memory = _with_requests(memory, heard, objectives)
    freshness = _freshness(memory, heard, is_reset=is_reset, had_standing=before is not None)
    if freshness is not Reason.INPUT_FRESH:
        memory = replace(memory, bad_at_s=heard.now_s)
    elif _is_recovering(memory, heard.now_s):
        freshness = Reason.INPUT_RECOVERING
    observed = _observation(memory, heard, objectives, freshness, is_new_engine=is_new_engine)
    return observed, replace(memory, turned_at_s=heard.now_s)


def _is_other_engine(known: EngineFacts | None, heard: EngineFacts | None) -> bool:
    """Whether it differs in more than its session; an engine that is away may come back."""
    if known is None or heard is None:
        return False
    return replace(known, epoch=heard.epoch) != heard


def _is_reset(memory: ObservationMemory, heard: Heard) -> bool:
    """Whether the engine's clock or its numbers of micro-batches went back: it began anew."""
    old, new = memory.standing, heard.standing
    if old and new and new.engine_now_s < old.engine_now_s:
        return True
    first = heard.steps[0].sequence if heard.steps else None
    return first is not None and memory.last_step is not None and first < memory.last_step.sequence


def _with_clocks(memory: ObservationMemory, heard: Heard) -> ObservationMemory:
    now_s = heard.now_s
    memory = replace(memory, engine=heard.engine or memory.engine)
    if heard.num_steps or memory.turned_at_s is None or not _has_work(memory.standing):
        memory = replace(memory, stepped_at_s=now_s)
    if heard.standing is None:
        return memory
    old = memory.standing
    has_moved = old is None or heard.standing.engine_now_s > old.engine_now_s
    return replace(
        memory,
        standing=heard.standing,
        heard_at_s=now_s,
        clock_moved_at_s=now_s if has_moved else memory.clock_moved_at_s,
    )


def _has_work(standing: Standing | None) -> bool:
    return standing is not None and standing.num_running > standing.num_held


def _with_steps(memory: ObservationMemory, heard: Heard) -> ObservationMemory:
    """Sums over steps that fade with time, so that they tell of the last seconds."""
    elapsed_s = 0.0 if memory.turned_at_s is None else heard.now_s - memory.turned_at_s
    kept_ratio = 0.5 ** (max(0.0, elapsed_s) / _BUBBLE_HALF_LIFE_S)
    busy_s = [kept_ratio * value for value in memory.busy_s]
    bubble_s = [kept_ratio * value for value in memory.bubble_s]
    cycle_s, context = memory.cycle_s, memory.context_tokens
    for step in heard.steps:
        if len(step.step_time_s) != len(busy_s):
            busy_s, bubble_s = [0.0] * len(step.step_time_s), [0.0] * len(step.step_time_s)
        busy_s = [a + b for a, b in zip(busy_s, step.step_time_s, strict=True)]
        bubble_s = [a + b for a, b in zip(bubble_s, step.bubble_s, strict=True)]
        cycle_s = _faded(cycle_s, step.span_s)
        if step.num_decodes:
            context = _faded(context, step.features.decode_context_tokens / step.num_decodes)
    return replace(
        memory,
        last_step=heard.steps[-1] if heard.steps else memory.last_step,
        cycle_s=cycle_s,
        context_tokens=context,
        busy_s=tuple(busy_s),
        bubble_s=tuple(bubble_s),
    )


def _faded(old: float, new: float) -> float:
    return new if old == 0.0 else old + 0.1 * (new - old)


def _with_requests(
    memory: ObservationMemory, heard: Heard, objectives: Objectives
) -> ObservationMemory:
    waiting = memory.standing.waiting_tokens if memory.standing else 0
    targets = (objectives.ttft, objectives.tpot)
    window = memory.window if targets == memory.targets else memory.window.unjudged()
    window = window.moved(heard.now_s, objectives.window_s, waiting)
    recent = memory.recent.moved(heard.now_s, RECENT_S, waiting)
    return replace(
        memory,
        targets=targets,
        window=window.plus(heard.requests, *targets),
        recent=recent.plus(heard.requests, *targets),
    )


def _freshness(
    memory: ObservationMemory, heard: Heard, *, is_reset: bool, had_standing: bool
) -> Reason:
    """The first thing that is wrong, or INPUT_FRESH."""
    silent_s = None if memory.heard_at_s is None else heard.now_s - memory.heard_at_s
    frozen_s = heard.now_s - memory.clock_moved_at_s if had_standing else 0.0
    wrongs = (
        (heard.engine is None, Reason.ENGINE_DISCONNECTED),
        (is_reset, Reason.INPUT_RESET),
        (bool(heard.num_refused) and heard.standing is None, Reason.INPUT_NOT_FINITE),
        (silent_s is None or memory.standing is None, Reason.INPUT_MISSING),
        (silent_s is not None and silent_s > STALE_AFTER_S, Reason.INPUT_STALE),
        (frozen_s > STALE_AFTER_S or _is_stuck(memory, heard.now_s), Reason.INPUT_FROZEN),
    )
    return next((reason for is_wrong, reason in wrongs if is_wrong), Reason.INPUT_FRESH)


def _is_stuck(memory: ObservationMemory, now_s: float) -> bool:
    """Whether there is work that makes no step for far longer than steps take."""
    limit_s = max(FROZEN_AFTER_S, _FROZEN_CYCLES * memory.cycle_s)
    return _has_work(memory.standing) and now_s - memory.stepped_at_s > limit_s


def _is_recovering(memory: ObservationMemory, now_s: float) -> bool:
    return memory.bad_at_s is not None and now_s - memory.bad_at_s < RECOVERY_S


def _observation(
    memory: ObservationMemory,
    heard: Heard,
    objectives: Objectives,
    freshness: Reason,
    *,
    is_new_engine: bool,
) -> Observation:
    window, standing = memory.window, memory.standing
    ttft, tpot = window.ttft, window.tpot
    are_met = _is_within(ttft, objectives.ttft) and _is_within(tpot, objectives.tpot)
    met, reason = _slo_met(memory, objectives, freshness, are_met=are_met)
    percentile = objectives.ttft.percentile if objectives.ttft else 90
    return Observation(
        now_s=heard.now_s,
        freshness=freshness,
        age_s=None if memory.heard_at_s is None else heard.now_s - memory.heard_at_s,
        recovering_ratio=_recovering_ratio(memory, heard.now_s),
        is_new_engine=is_new_engine,
        engine=heard.engine,
        standing=standing,
        last_step=memory.last_step,
        ttft=ttft,
        tpot=tpot,
        recent_ttft_s=memory.recent.ttft.percentile(percentile),
        recent_tpot_s=_recent_tpot_s(memory, objectives),
        load=window.load(
            heard.now_s,
            standing.waiting_tokens if standing else 0,
            memory.context_tokens,
            percentile,
        ),
        num_judged=window.num_judged,
        num_attained=window.num_attained,
        slo_met=met,
        slo_reason=reason,
        cycle_s=memory.cycle_s,
        bubble_ratios=tuple(
            idle / (idle + busy) if idle + busy > 0.0 else 0.0
            for idle, busy in zip(memory.bubble_s, memory.busy_s, strict=True)
        ),
    )


def _recovering_ratio(memory: ObservationMemory, now_s: float) -> float:
    """0 for as long as input recovers, then up to 1 in as long again, twice."""
    if memory.bad_at_s is None:
        return 1.0
    after_s = now_s - memory.bad_at_s - RECOVERY_S
    return min(1.0, max(0.0, after_s / (2.0 * RECOVERY_S)))


def _recent_tpot_s(memory: ObservationMemory, objectives: Objectives) -> float | None:
    percentile = objectives.tpot.percentile if objectives.tpot else 90
    running = memory.standing.running_tpot_s if memory.standing else ()
    if len(running) == 3:
        return running[0 if percentile <= 50 else 1 if percentile <= 90 else 2]
    return memory.recent.tpot.percentile(percentile)


def _slo_met(
    memory: ObservationMemory, objectives: Objectives, freshness: Reason, *, are_met: bool
) -> tuple[Answer, Reason]:
    """Percentiles over the window against their targets; without traffic nothing is known.

    A prompt that has waited longer than the target while nobody got a first token at all counts
    as a miss, or a stalled queue would look like no traffic.
    """
    if freshness not in (Reason.INPUT_FRESH, Reason.INPUT_RECOVERING):
        return Answer.UNKNOWN, freshness
    window, standing = memory.window, memory.standing
    ttft = objectives.ttft
    if window.num_judged == 0:
        waits_s = standing.oldest_wait_s if standing else 0.0
        if ttft is not None and waits_s > ttft.target_s:
            return Answer.NO, Reason.QUEUE_LATE
        return Answer.UNKNOWN, Reason.NO_TRAFFIC
    return (Answer.YES, Reason.TARGETS_MET) if are_met else (Answer.NO, Reason.TARGETS_MISSED)


def _is_within(histogram: Histogram, goal: LatencyGoal | None) -> bool:
    """Whether the percentile meets its target; a latency that nobody had misses nothing."""
    if goal is None:
        return True
    measured_s = histogram.percentile(goal.percentile)
    return measured_s is None or measured_s <= goal.target_s
