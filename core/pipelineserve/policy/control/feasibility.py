"""Whether the targets can be met at the present load by any chunk size, and if not, which could.

A steady state is looked for, per candidate chunk c. A full micro-batch takes T(c, contexts), and
m · T + overhead pass between two tokens of a request. In T the load brings λ_out · T output tokens,
which are decodes that take room first, and λ_in · T prompt tokens for the room x that is left. With
u = λ_in · T ÷ x the queue is stable below 1, and a prompt waits longer than t with the probability
u · exp(-t ÷ τ), where τ = E[S²] ÷ (2 · E[S]) ÷ (1 - u) is the mean wait of a busy M/G/1 queue and S
is a prompt's length ÷ (x ÷ T). TTFT is this wait, the pieces of a long prompt, and one passage
through all stages. Micro-batches that are not full are faster, so the verdict is on the safe side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import StepFeatures, StepTimeModel


@dataclass(frozen=True, slots=True)
class Targets:
    """What is to be met; None: no such target. The percentile is below 100."""

    ttft_s: float | None
    tpot_s: float | None
    ttft_percentile: float = 90.0


@dataclass(frozen=True, slots=True)
class Load:
    """The present load, as means over a window.

    Attributes:
        prefill_tokens_per_s: prompt tokens that arrive.
        decode_tokens_per_s: output tokens that they ask for.
        prompt_tokens: mean length of a prompt.
        squared_prompt_tokens: mean of its square.
        long_prompt_tokens: length at the TTFT's percentile.
        decode_context_tokens: mean context of a decode.
    """

    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    prompt_tokens: float
    squared_prompt_tokens: float
    long_prompt_tokens: float
    decode_context_tokens: float


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What the load runs on.

    Attributes:
        model: time of a step on the slowest stage.
        candidates: chunk sizes, ascending, at least one.
        num_slots: micro-batches in flight.
        kv_tokens: tokens for which there is KV.
        cycle_overhead_s: time per cycle in which a slot is in no stage's hands.
    """

    model: StepTimeModel
    candidates: tuple[int, ...]
    num_slots: int
    kv_tokens: int
    cycle_overhead_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SteadyState:
    """What one chunk size comes to.

    Attributes:
        chunk_tokens: that size.
        load_ratio: the share u of its prefill room that the load takes; 1 and above: overloaded.
        kv_ratio: the share of KV that the decodes take.
        ttft_s: at the percentile; None if overloaded.
        tpot_s: of every request, holding aside.
    """

    chunk_tokens: int
    load_ratio: float
    kv_ratio: float
    ttft_s: float | None
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the targets can be met.

    Attributes:
        is_feasible: whether some chunk meets both.
        reason: why, or what is in the way.
        best: the state of the smallest chunk that meets both; else of the one that comes closest,
            by the worse of the two ratios to target; None without load.
        least_ttft_s: the TTFT that could be met while the TPOT target is; None if none could.
        least_tpot_s: the TPOT that could be met while the TTFT target is; None if none could.
    """

    is_feasible: bool
    reason: Reason
    best: SteadyState | None
    least_ttft_s: float | None
    least_tpot_s: float | None


def judge(pipeline: Pipeline, load: Load, targets: Targets) -> Verdict:
    """Look through all candidates."""
    if load.prefill_tokens_per_s <= 0.0 and load.decode_tokens_per_s <= 0.0:
        return Verdict(
            is_feasible=True,
            reason=Reason.NO_LOAD,
            best=None,
            least_ttft_s=None,
            least_tpot_s=None,
        )
    states = [steady_state(pipeline, load, targets, size) for size in pipeline.candidates]
    served = [state for state in states if state.ttft_s is not None and state.kv_ratio <= 1.0]
    fast = [state for state in served if _meets(state.tpot_s, targets.tpot_s)]
    early = [state for state in served if _meets(state.ttft_s, targets.ttft_s)]
    both = [state for state in fast if _meets(state.ttft_s, targets.ttft_s)]
    return Verdict(
        is_feasible=bool(both),
        reason=_reason(states, served, fast, early, both),
        best=both[0] if both else _closest(served or states, targets),
        least_ttft_s=min((s.ttft_s for s in fast if s.ttft_s is not None), default=None),
        least_tpot_s=min((state.tpot_s for state in early), default=None),
    )


def steady_state(
    pipeline: Pipeline, load: Load, targets: Targets, chunk_tokens: int
) -> SteadyState:
    """What this chunk size comes to under the load."""
    step_s, decodes = _step(pipeline, load, chunk_tokens)
    tpot_s = pipeline.num_slots * step_s + pipeline.cycle_overhead_s
    room_per_s = max(0.0, chunk_tokens - decodes) / step_s
    wanted = load.prefill_tokens_per_s
    # Decodes alone may fill the chunk: then even a load without prompts is too much for it.
    load_ratio = wanted / room_per_s if room_per_s > 0.0 else _OVERLOADED
    return SteadyState(
        chunk_tokens=chunk_tokens,
        load_ratio=min(load_ratio, _OVERLOADED),
        kv_ratio=decodes * pipeline.num_slots * load.decode_context_tokens / pipeline.kv_tokens,
        ttft_s=_ttft_s(load, targets, load_ratio, room_per_s, tpot_s),
        tpot_s=tpot_s,
    )


# A number and not infinity, so that a verdict can be written as JSON.
_OVERLOADED = 1e9
_STEPS_TO_SETTLE = 60


def _step(pipeline: Pipeline, load: Load, chunk_tokens: int) -> tuple[float, float]:
    """Seconds of a step, and the decodes in it: each depends on the other, so they are iterated.

    Decodes beyond the chunk cannot go, so that their number stays within it.
    """
    # The length of the prompt that a token is in, on average; before it lie half of the rest.
    length = load.squared_prompt_tokens / load.prompt_tokens if load.prompt_tokens > 0.0 else 0.0
    decodes = 0.0
    step_s = 0.0
    for _ in range(_STEPS_TO_SETTLE):
        prefill = max(0.0, chunk_tokens - decodes)
        piece = min(prefill, length)
        features = StepFeatures(
            decode_context_tokens=decodes * load.decode_context_tokens,
            squared_prefill_tokens=prefill * piece,
            past_prefill_product=prefill * (length - piece) / 2.0,
            num_decodes=decodes,
        )
        step_s = pipeline.model.predict_s(chunk_tokens, features)
        decodes = min(float(chunk_tokens), load.decode_tokens_per_s * step_s)
    return step_s, decodes


def _ttft_s(
    load: Load, targets: Targets, load_ratio: float, room_per_s: float, tpot_s: float
) -> float | None:
    if load_ratio >= 1.0:
        return None
    late_share = 1.0 - targets.ttft_percentile / 100.0
    wait_s = 0.0
    if load_ratio > late_share and load.prompt_tokens > 0.0:
        residual_s = load.squared_prompt_tokens / (2.0 * load.prompt_tokens) / room_per_s
        wait_s = residual_s / (1.0 - load_ratio) * log(load_ratio / late_share)
    return wait_s + load.long_prompt_tokens / room_per_s + tpot_s


def _meets(value_s: float | None, target_s: float | None) -> bool:
    return target_s is None or (value_s is not None and value_s <= target_s)


def _reason(
    states: Sequence[SteadyState],
    served: Sequence[SteadyState],
    fast: Sequence[SteadyState],
    early: Sequence[SteadyState],
    both: Sequence[SteadyState],
) -> Reason:
    if both:
        return Reason.TARGETS_FEASIBLE
    if not served:
        is_stable = any(state.ttft_s is not None for state in states)
        return Reason.KV_TOO_SMALL if is_stable else Reason.LOAD_TOO_HIGH
    if fast:
        return Reason.TARGETS_CONFLICT if early else Reason.TTFT_TOO_STRICT
    return Reason.TPOT_TOO_STRICT if early else Reason.TARGETS_TOO_STRICT


def _closest(states: Sequence[SteadyState], targets: Targets) -> SteadyState:
    def distance(state: SteadyState) -> tuple[float, float]:
        ttft_ratio = _ratio(state.ttft_s, targets.ttft_s)
        return max(ttft_ratio, _ratio(state.tpot_s, targets.tpot_s)), state.load_ratio

    return min(states, key=distance)


def _ratio(value_s: float | None, target_s: float | None) -> float:
    if target_s is None:
        return 0.0
    return _OVERLOADED if value_s is None else value_s / target_s
