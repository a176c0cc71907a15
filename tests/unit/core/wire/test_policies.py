"""Policies on the wire: what is sent arrives, and what is wrong is named."""

from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.errors import InvalidInputError
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.policy.step_time import StepCoefficients, StepTimeModel, StepTimeTable
from pipelineserve.policy.triage import Triage
from pipelineserve.wire.policies import decode_policy, encode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb

CEILING = 2048

seconds = st.floats(0.001, 100.0)
models = st.builds(
    StepTimeModel,
    st.just(StepTimeTable((16, 128, 129), (0.01, 0.02, 0.03))),
    st.builds(StepCoefficients, seconds, *[st.floats(0, 1)] * 3),
    seconds,
    st.floats(0, 10),
)
fixed_chunks = st.builds(Static, st.integers(1, CEILING), st.sampled_from(Reason))


@st.composite
def leased_policies(draw: st.DrawFn) -> LeasedPolicy:
    model = draw(models)
    predictive = st.builds(
        Predictive, st.just(model), st.just((64, 128, 2048)), st.none() | seconds, seconds,
        num_spreads=st.floats(0, 10), least_kv_free_ratio=st.floats(0, 1),
        least_prefill_tokens=st.integers(1, 64),
    )  # fmt: skip
    holding = st.builds(
        Rebalance, st.sampled_from(HoldMode), st.just(model),
        st.sampled_from([(), (4, 8)]), seconds, seconds, *[st.floats(0, 1)] * 4,
    )  # fmt: skip
    order = (
        st.just(Arrival())
        | st.builds(Ageing, st.floats(0, 10))
        | st.builds(Triage, seconds, st.floats(0, 1))
    )
    policy = SchedulingPolicy(
        draw(fixed_chunks | predictive), draw(order), draw(st.just(HoldNothing()) | holding)
    )
    static_tokens = draw(st.none() | st.integers(1, CEILING))
    return LeasedPolicy(policy, draw(st.floats(0.05, 300.0)), static_tokens)


def valid() -> pb.Policy:
    """A message with every part, for tests that spoil one."""
    model = StepTimeModel(StepTimeTable((16,), (0.01,)))
    policy = SchedulingPolicy(
        Predictive(model, (64, 128), 0.2),
        Ageing(),
        Rebalance(HoldMode.TPOT_FIRST, model, (4, 8)),
    )
    return encode_policy(LeasedPolicy(policy, 5.0))


def faults_of(message: pb.Policy) -> str:
    with pytest.raises(InvalidInputError) as caught:
        decode_policy(message, max_chunk_tokens=CEILING)
    return str(caught.value)


@given(leased=leased_policies())
def test_what_is_sent_arrives(leased: LeasedPolicy) -> None:
    sent = encode_policy(leased).SerializeToString()
    assert decode_policy(pb.Policy.FromString(sent), max_chunk_tokens=CEILING) == leased


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda m: m.ClearField("lease_s"), "lease_s: expected 0.05 to 300, got 0"),
        (lambda m: setattr(m, "lease_s", float("nan")), "lease_s: expected 0.05 to 300, got nan"),
        (lambda m: setattr(m, "static_chunk_tokens", CEILING + 1),
         "static_chunk_tokens: expected 1 to 2048, got 2049"),
        (lambda m: m.ClearField("model"), "model: expected a step-time model, which predictive"),
        (lambda m: m.ClearField("predictive"), "chunking: expected either fixed or predictive"),
        (lambda m: m.predictive.candidates.append(4096), "predictive.candidates: expected ascend"),
        (lambda m: m.predictive.candidates.append(64), "[64, 128, 64]"),
        (lambda m: m.predictive.ClearField("candidates"), "candidates: expected at least one"),
        (lambda m: m.predictive.candidates.extend(range(600)), "at most 512 entries, got 602"),
        (lambda m: setattr(m.predictive, "tpot_target_s", -1.0), "predictive.tpot_target_s: exp"),
        (lambda m: setattr(m.predictive, "horizon_s", 0.0), "predictive.horizon_s: expected 0.001"),
        (lambda m: setattr(m.predictive, "least_prefill_tokens", 0), "least_prefill_tokens: exp"),
        (lambda m: m.model.ClearField("times_s"), "model: step-time table: expected one time"),
        (lambda m: setattr(m.model, "table_ratio", 0.0), "model.table_ratio: expected 0.001 to"),
        (lambda m: setattr(m.model, "feedback_ratio", -1.0), "model.feedback_ratio: expected 0.0"),
        (lambda m: setattr(m.model, "past_prefill_s", 2.0), "model.past_prefill_s: expected 0"),
        (lambda m: m.model.times_s.__setitem__(0, 5e-324), "model.times_s: expected 1e-07 to 3600"),
        (lambda m: m.model.tokens.extend(range(600)), "model.tokens: expected at most 512"),
        (lambda m: m.ClearField("order"), "order.kind: expected ARRIVAL, AGEING or TRIAGE"),
        (lambda m: setattr(m.order, "seconds_per_token", 1e9), "order.seconds_per_token: expected"),
        (lambda m: m.order.CopyFrom(pb.Order(kind=pb.ORDER_KIND_TRIAGE, late_share_ratio=0.1)),
         "order.ttft_target_s: expected 0.001 to 3600, got 0"),
        (lambda m: m.order.CopyFrom(
            pb.Order(kind=pb.ORDER_KIND_TRIAGE, ttft_target_s=1, late_share_ratio=1.5)),
         "order.late_share_ratio: expected 0 to 1, got 1.5"),
        (lambda m: m.ClearField("rebalance"), "rebalance.mode: expected OFF, TPOT_FIRST or E2E"),
        (lambda m: m.rebalance.boundaries.append(1), "rebalance.boundaries: expected ascending"),
        (lambda m: setattr(m.rebalance, "max_gap_s", 0.0), "rebalance.max_gap_s: expected 0.001"),
        (lambda m: setattr(m.rebalance, "hold_budget_s", -1.0), "rebalance.hold_budget_s: expe"),
        (lambda m: m.fixed.CopyFrom(pb.FixedChunk(chunk_tokens=9000, reason="static_chunk")),
         "fixed.chunk_tokens: expected 1 to 2048, got 9000"),
        (lambda m: m.fixed.CopyFrom(pb.FixedChunk(chunk_tokens=9, reason="x" * 500)),
         "fixed.reason: expected a known reason, got xxx"),
    ],
)  # fmt: skip
def test_names_the_field_that_is_wrong(spoil: Callable[[pb.Policy], None], expected: str) -> None:
    message = valid()
    spoil(message)
    assert expected in faults_of(message)


def test_one_model_travels_for_chunking_and_holding() -> None:
    models = [StepTimeModel(StepTimeTable((16,), (time_s,))) for time_s in (0.01, 0.02)]
    policy = SchedulingPolicy(
        Predictive(models[0], (64,), None),
        holding=Rebalance(HoldMode.TPOT_FIRST, models[1], ()),
    )
    with pytest.raises(ValueError, match="got two that differ"):
        encode_policy(LeasedPolicy(policy, 1.0))


def test_names_all_that_is_wrong_at_once() -> None:
    message = valid()
    message.lease_s = 0.0
    message.predictive.horizon_s = -1.0
    message.order.kind = pb.ORDER_KIND_UNSPECIFIED
    assert "(3 faults)" in faults_of(message)


def test_holding_that_is_off_needs_nothing_else() -> None:
    message = encode_policy(LeasedPolicy(SchedulingPolicy(Static(64)), 1.0))
    message.rebalance.boundaries.extend([9, 3])
    assert decode_policy(message, max_chunk_tokens=CEILING).policy.holding == HoldNothing()


@given(start=st.integers(0, 150), noise=st.binary(max_size=40))
def test_noise_is_refused_or_is_a_policy_within_bounds(start: int, noise: bytes) -> None:
    sent = valid().SerializeToString()
    spoilt = sent[:start] + noise + sent[start + len(noise) :]
    try:
        leased = decode_policy(pb.Policy.FromString(spoilt), max_chunk_tokens=CEILING)
    except (DecodeError, InvalidInputError):
        return
    assert 0.0 < leased.lease_s <= 300.0
    again = decode_policy(encode_policy(leased), max_chunk_tokens=CEILING)
    assert again == leased
