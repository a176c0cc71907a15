"""Policies on the wire: a message becomes a value of the policy package here, or fails here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import TypeVar

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.policy.step_time import (
    LEAST_STEP_S,
    StepCoefficients,
    StepTimeModel,
    StepTimeTable,
)
from pipelineserve.policy.triage import Triage
from pipelineserve.wire.v1 import scheduler_pb2 as pb

_BuiltT = TypeVar("_BuiltT")

MAX_LEASE_S = 300.0
MAX_CHUNK_TOKENS = 131_072
MAX_LIST_LENGTH = 512
_MAX_S = 3600.0

_MODEL_BOUNDS = {
    "table_ratio": (1e-3, 1e3),
    "decode_context_s": (0.0, 1.0),
    "squared_prefill_s": (0.0, 1.0),
    "past_prefill_s": (0.0, 1.0),
    "decode_s": (0.0, 1.0),
    "feedback_ratio": (1e-3, 1e3),
    "spread_ratio": (0.0, 10.0),
}
_REBALANCE_BOUNDS = {
    "max_gap_s": (0.001, _MAX_S),
    "hold_budget_s": (0.0, _MAX_S),
    "least_gain_ratio": (0.0, 10.0),
    "tolerance_ratio": (0.0, 10.0),
    "least_kv_free_ratio": (0.0, 1.0),
    "relaxed_kv_free_ratio": (0.0, 1.0),
}
_PREDICTIVE_BOUNDS = {
    "horizon_s": (0.001, _MAX_S),
    "arrival_window_s": (0.1, _MAX_S),
    "num_spreads": (0.0, 10.0),
    "step_overhead_s": (0.0, _MAX_S),
    "cycle_overhead_s": (0.0, _MAX_S),
    "least_kv_free_ratio": (0.0, 1.0),
}
_MODES = {
    pb.REBALANCE_MODE_TPOT_FIRST: HoldMode.TPOT_FIRST,
    pb.REBALANCE_MODE_E2E_FIRST: HoldMode.E2E_FIRST,
}
_WIRE_MODES = {mode: number for number, mode in _MODES.items()}


def encode_policy(leased: LeasedPolicy) -> pb.Policy:
    """The message of a policy.

    Raises:
        ValueError: its chunking and its holding have different models; one travels for both.
    """
    policy = leased.policy
    message = pb.Policy(lease_s=leased.lease_s, static_chunk_tokens=leased.static_chunk_tokens or 0)
    match policy.chunking:
        case Static(chunk_tokens, reason):
            message.fixed.CopyFrom(pb.FixedChunk(chunk_tokens=chunk_tokens, reason=reason.value))
        case Predictive() as predictive:
            message.model.CopyFrom(_encode_model(predictive.model))
            message.predictive.CopyFrom(_encode_predictive(predictive))
    match policy.order:
        case Arrival():
            message.order.kind = pb.ORDER_KIND_ARRIVAL
        case Ageing(seconds_per_token):
            message.order.kind = pb.ORDER_KIND_AGEING
            message.order.seconds_per_token = seconds_per_token
        case Triage(ttft_target_s, late_share_ratio):
            message.order.kind = pb.ORDER_KIND_TRIAGE
            message.order.ttft_target_s = ttft_target_s
            message.order.late_share_ratio = late_share_ratio
    match policy.holding:
        case HoldNothing():
            message.rebalance.mode = pb.REBALANCE_MODE_OFF
        case Rebalance() as holding:
            if isinstance(policy.chunking, Predictive) and policy.chunking.model != holding.model:
                raise ValueError("a policy: expected one step-time model, got two that differ")
            message.model.CopyFrom(_encode_model(holding.model))
            message.rebalance.CopyFrom(_encode_rebalance(holding))
    return message


def decode_policy(message: pb.Policy, *, max_chunk_tokens: int) -> LeasedPolicy:
    """The policy of a message, all of it within bounds.

    Args:
        message: as it came.
        max_chunk_tokens: ceiling that the engine's buffers were sized for.

    Raises:
        InvalidInputError: names every field that is wrong, what was got and what was expected.
    """
    reader = _Reader(max_chunk_tokens)
    lease_s = reader.number("lease_s", message.lease_s, 0.05, MAX_LEASE_S)
    static_tokens = reader.static_tokens(message.static_chunk_tokens)
    model = reader.model(message.model) if message.HasField("model") else None
    chunking = reader.chunking(message, model)
    order = reader.order(message.order)
    holding = reader.holding(message.rebalance, model)
    if reader.faults:
        raise InvalidInputError("the policy", reader.faults)
    policy = SchedulingPolicy(reader.sure(chunking), order, holding)
    return LeasedPolicy(policy, lease_s, static_tokens)


@dataclass(slots=True)
class _Reader:
    """Reads field after field and collects what is wrong; what is wrong gets a stand-in."""

    max_chunk_tokens: int
    faults: list[Fault] = field(default_factory=list)

    def sure(self, chunking: Static | Predictive | None) -> Static | Predictive:
        """What is there, since no fault was found."""
        if chunking is None:
            raise AssertionError("a policy without chunking is a fault")
        return chunking

    def number(self, path: str, value: float, least: float, most: float) -> float:
        """A number within bounds."""
        if isfinite(value) and least <= value <= most:
            return value
        self._fault(path, f"{least:g} to {most:g}", f"{value:g}")
        return least

    def static_tokens(self, value: int) -> int | None:
        """The chunk after a lease; None if the policy says nothing of it."""
        if value == 0:
            return None
        return int(self.number("static_chunk_tokens", value, 1, self.max_chunk_tokens))

    def ascending(self, path: str, values: Sequence[int], most: int) -> tuple[int, ...]:
        """A list of ascending counts, at least 1 each; it may be empty."""
        if len(values) > MAX_LIST_LENGTH:
            self._fault(path, f"at most {MAX_LIST_LENGTH} entries", f"{len(values)}")
            return ()
        is_ascending = all(a < b for a, b in pairwise(values))
        if not is_ascending or any(not 1 <= value <= most for value in values):
            self._fault(path, f"ascending numbers from 1 to {most}", _shown(values))
            return ()
        return tuple(values)

    def model(self, message: pb.StepTimeModel) -> StepTimeModel | None:
        """The step-time model; its own types say what is wrong with it."""
        sizes = max(len(message.tokens), len(message.times_s))
        if sizes > MAX_LIST_LENGTH:
            self._fault("model.tokens", f"at most {MAX_LIST_LENGTH} entries", f"{sizes}")
            return None
        num_faults = len(self.faults)
        for name, (least, most) in _MODEL_BOUNDS.items():
            self.number(f"model.{name}", getattr(message, name), least, most)
        if not all(LEAST_STEP_S <= time_s <= _MAX_S for time_s in message.times_s):
            bounds = f"{LEAST_STEP_S:g} to {_MAX_S:g} each"
            self._fault("model.times_s", bounds, _shown(list(message.times_s)))
        table = self._built(
            "model", lambda: StepTimeTable(tuple(message.tokens), tuple(message.times_s))
        )
        if table is None or len(self.faults) > num_faults:
            return None
        coefficients = self._built(
            "model",
            lambda: StepCoefficients(
                message.table_ratio,
                message.decode_context_s,
                message.squared_prefill_s,
                message.past_prefill_s,
                message.decode_s,
            ),
        )
        if coefficients is None:
            return None
        return self._built(
            "model",
            lambda: StepTimeModel(
                table, coefficients, message.feedback_ratio, message.spread_ratio
            ),
        )

    def chunking(
        self, message: pb.Policy, model: StepTimeModel | None
    ) -> Static | Predictive | None:
        """The chunk policy; None with a fault."""
        match message.WhichOneof("chunking"):
            case "fixed":
                return self._fixed(message.fixed)
            case "predictive":
                return self._predictive(message.predictive, model)
            case _:
                self._fault("chunking", "either fixed or predictive", "neither")
                return None

    def order(self, message: pb.Order) -> Arrival | Ageing | Triage:
        """The order of the queue."""
        match message.kind:
            case pb.ORDER_KIND_ARRIVAL:
                return Arrival()
            case pb.ORDER_KIND_AGEING:
                path = "order.seconds_per_token"
                return Ageing(self.number(path, message.seconds_per_token, 0.0, 10.0))
            case pb.ORDER_KIND_TRIAGE:
                path = "order.ttft_target_s"
                target_s = self.number(path, message.ttft_target_s, 0.001, _MAX_S)
                path = "order.late_share_ratio"
                return Triage(target_s, self.number(path, message.late_share_ratio, 0.0, 1.0))
            case kind:
                self._fault("order.kind", "ARRIVAL, AGEING or TRIAGE", f"{kind}")
                return Arrival()

    def holding(
        self, message: pb.Rebalance, model: StepTimeModel | None
    ) -> Rebalance | HoldNothing:
        """Delay scheduling; nothing is held with a fault."""
        if message.mode == pb.REBALANCE_MODE_OFF:
            return HoldNothing()
        mode = _MODES.get(message.mode)
        if mode is None:
            self._fault("rebalance.mode", "OFF, TPOT_FIRST or E2E_FIRST", f"{message.mode}")
            return HoldNothing()
        boundaries = self.ascending(
            "rebalance.boundaries", message.boundaries, self.max_chunk_tokens
        )
        bounded = {
            name: self.number(f"rebalance.{name}", getattr(message, name), least, most)
            for name, (least, most) in _REBALANCE_BOUNDS.items()
        }
        if model is None:
            self._fault("model", "a step-time model, which holding decodes needs", "none")
            return HoldNothing()
        return Rebalance(mode, model, boundaries, **bounded)

    def _fixed(self, message: pb.FixedChunk) -> Static | None:
        reason = next((r for r in Reason if r.value == message.reason), None)
        if reason is None:
            self._fault("fixed.reason", "a known reason", _shown(message.reason))
        path, most = "fixed.chunk_tokens", self.max_chunk_tokens
        chunk_tokens = int(self.number(path, message.chunk_tokens, 1, most))
        return None if reason is None else Static(chunk_tokens, reason)

    def _predictive(
        self, message: pb.PredictiveChunk, model: StepTimeModel | None
    ) -> Predictive | None:
        path = "predictive"
        candidates = self.ascending(f"{path}.candidates", message.candidates, self.max_chunk_tokens)
        if not message.candidates:
            self._fault(f"{path}.candidates", "at least one", "none")
        target_s = None
        if message.HasField("tpot_target_s"):
            target_s = self.number(f"{path}.tpot_target_s", message.tpot_target_s, 1e-4, _MAX_S)
        bounded = {
            name: self.number(f"{path}.{name}", getattr(message, name), least, most)
            for name, (least, most) in _PREDICTIVE_BOUNDS.items()
        }
        least_prefill = self.number(
            f"{path}.least_prefill_tokens", message.least_prefill_tokens, 1, MAX_CHUNK_TOKENS
        )
        if model is None:
            self._fault("model", "a step-time model, which predictive needs", "none")
        if model is None or not candidates:
            return None
        return Predictive(
            model, candidates, target_s, least_prefill_tokens=int(least_prefill), **bounded
        )

    def _built(self, path: str, build: Callable[[], _BuiltT]) -> _BuiltT | None:
        try:
            return build()
        except ValueError as error:
            self.faults.append(Fault(path, str(error)))
            return None

    def _fault(self, path: str, expected: str, got: str) -> None:
        self.faults.append(Fault(path, f"expected {expected}, got {got}"))


def _encode_model(model: StepTimeModel) -> pb.StepTimeModel:
    return pb.StepTimeModel(
        tokens=model.table.tokens,
        times_s=model.table.times_s,
        table_ratio=model.coefficients.table_ratio,
        decode_context_s=model.coefficients.decode_context_s,
        squared_prefill_s=model.coefficients.squared_prefill_s,
        past_prefill_s=model.coefficients.past_prefill_s,
        decode_s=model.coefficients.decode_s,
        feedback_ratio=model.feedback_ratio,
        spread_ratio=model.spread_ratio,
    )


def _encode_predictive(predictive: Predictive) -> pb.PredictiveChunk:
    return pb.PredictiveChunk(
        candidates=predictive.candidates,
        tpot_target_s=predictive.tpot_target_s,
        horizon_s=predictive.horizon_s,
        arrival_window_s=predictive.arrival_window_s,
        num_spreads=predictive.num_spreads,
        step_overhead_s=predictive.step_overhead_s,
        cycle_overhead_s=predictive.cycle_overhead_s,
        least_kv_free_ratio=predictive.least_kv_free_ratio,
        least_prefill_tokens=predictive.least_prefill_tokens,
    )


def _encode_rebalance(holding: Rebalance) -> pb.Rebalance:
    return pb.Rebalance(
        mode=_WIRE_MODES[holding.mode],
        boundaries=holding.boundaries,
        max_gap_s=holding.max_gap_s,
        hold_budget_s=holding.hold_budget_s,
        least_gain_ratio=holding.least_gain_ratio,
        tolerance_ratio=holding.tolerance_ratio,
        least_kv_free_ratio=holding.least_kv_free_ratio,
        relaxed_kv_free_ratio=holding.relaxed_kv_free_ratio,
    )


def _shown(value: object) -> str:
    """A bounded part of what was got."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
