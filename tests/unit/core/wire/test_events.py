"""What an engine tells becomes values, or is refused and counted."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.errors import InvalidInputError
from pipelineserve.policy.control.heard import Capability, Ending
from pipelineserve.wire.events import decode_hello, decode_records
from pipelineserve.wire.v1 import scheduler_pb2 as pb


def make_hello(**changes: object) -> pb.Hello:
    fields: dict[str, object] = {
        "engine_name": "engine",
        "epoch": 7,
        "num_stages": 2,
        "num_slots": 2,
        "max_chunk_tokens": 2048,
        "static_chunk_tokens": 512,
        "kv_tokens": 1000,
        "capabilities": [pb.CAPABILITY_CHUNK, pb.CAPABILITY_HOLD],
    }
    return pb.Hello(**{**fields, **changes})  # type: ignore[arg-type]


def make_step(**changes: object) -> pb.StepRecord:
    fields: dict[str, object] = {
        "sequence": 3,
        "chunk_tokens": 512,
        "num_tokens": 100,
        "num_decodes": 4,
        "decode_context_tokens": 400.0,
        "span_s": 0.2,
        "step_time_s": [0.1, 0.09],
        "bubble_s": [0.0, 0.01],
    }
    return pb.StepRecord(**{**fields, **changes})  # type: ignore[arg-type]


def make_request(**changes: object) -> pb.RequestRecord:
    fields: dict[str, object] = {"outcome": pb.OUTCOME_STOP, "ttft_s": 0.5, "held_s": 0.0}
    return pb.RequestRecord(**{**fields, **changes})  # type: ignore[arg-type]


def make_snapshot(**changes: object) -> pb.Snapshot:
    fields: dict[str, object] = {"num_waiting": 2, "kv_free_ratio": 0.5, "oldest_wait_s": 1.0}
    return pb.Snapshot(**{**fields, **changes})  # type: ignore[arg-type]


IMPOSSIBLE = [math.nan, math.inf, -math.inf, -1.0, 1e300]
BROKEN: list[Callable[[float], pb.Records]] = [
    lambda x: pb.Records(steps=[make_step(span_s=x)]),
    lambda x: pb.Records(steps=[make_step(step_time_s=[0.1, x])]),
    lambda x: pb.Records(steps=[make_step(bubble_s=[x, 0.0])]),
    lambda x: pb.Records(steps=[make_step(decode_context_tokens=x)]),
    lambda x: pb.Records(steps=[make_step(squared_prefill_tokens=x)]),
    lambda x: pb.Records(steps=[make_step(past_prefill_product=x)]),
    lambda x: pb.Records(requests=[make_request(ttft_s=x)]),
    lambda x: pb.Records(requests=[make_request(tpot_s=x)]),
    lambda x: pb.Records(requests=[make_request(held_s=x)]),
    lambda x: pb.Records(snapshot=make_snapshot(kv_free_ratio=x)),
    lambda x: pb.Records(snapshot=make_snapshot(oldest_wait_s=x)),
    lambda x: pb.Records(snapshot=make_snapshot(running_tpot_s=[0.1, x, 0.1])),
    lambda x: pb.Records(snapshot=make_snapshot(demand_tokens_per_s=x)),
    lambda x: pb.Records(now_s=x, snapshot=make_snapshot()),
]


def test_a_hello_is_read_with_the_capabilities_that_are_known() -> None:
    facts = decode_hello(make_hello())
    assert (facts.name, facts.epoch, facts.num_slots) == ("engine", 7, 2)
    assert facts.capabilities == (Capability.CHUNK, Capability.HOLD)


def test_an_engine_that_cannot_be_controlled_says_why() -> None:
    assert decode_hello(make_hello()).inactive_reason == ""
    hello = make_hello(inactive_reason="hooks are missing " * 100)
    assert decode_hello(hello).inactive_reason.startswith("hooks are missing")
    assert len(decode_hello(hello).inactive_reason) == 253


@pytest.mark.parametrize("name", ["epoch", "num_stages", "num_slots", "max_chunk_tokens"])
def test_a_hello_without_a_count_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{name}: expected at least 1, got 0"):
        decode_hello(make_hello(**{name: 0}))


def test_possible_records_are_all_passed_on() -> None:
    records = pb.Records(
        now_s=9.0, steps=[make_step()], requests=[make_request()], snapshot=make_snapshot()
    )
    told = decode_records(records)
    assert (told.num_refused, len(told.steps), len(told.requests)) == (0, 1, 1)
    assert told.steps[0].features.decode_context_tokens == 400.0
    assert told.requests[0].ending is Ending.STOP
    assert told.standing is not None
    assert (told.standing.engine_now_s, told.standing.num_waiting) == (9.0, 2)


def test_a_latency_that_does_not_apply_is_none_and_not_zero() -> None:
    told = decode_records(pb.Records(requests=[make_request()]))
    assert (told.requests[0].ttft_s, told.requests[0].tpot_s) == (0.5, None)


@pytest.mark.parametrize("number", IMPOSSIBLE)
@pytest.mark.parametrize("records", BROKEN)
def test_a_record_with_an_impossible_number_is_refused_whole(
    records: Callable[[float], pb.Records], number: float
) -> None:
    told = decode_records(records(number))
    assert (told.num_refused, told.steps, told.requests, told.standing) == (1, (), (), None)


@pytest.mark.parametrize(
    "step",
    [
        make_step(num_tokens=0),
        make_step(step_time_s=[], bubble_s=[]),
        make_step(bubble_s=[0.0]),
    ],
)
def test_a_step_that_cannot_be_is_refused(step: pb.StepRecord) -> None:
    assert decode_records(pb.Records(steps=[step, make_step()])).num_refused == 1


@pytest.mark.parametrize(
    "snapshot",
    [make_snapshot(kv_free_ratio=1.01), make_snapshot(running_tpot_s=[0.1, 0.2])],
)
def test_a_snapshot_that_cannot_be_is_refused(snapshot: pb.Snapshot) -> None:
    told = decode_records(pb.Records(snapshot=snapshot))
    assert (told.num_refused, told.standing) == (1, None)


def test_an_unknown_outcome_is_refused() -> None:
    told = decode_records(pb.Records(requests=[make_request(outcome=0)]))
    assert (told.num_refused, told.requests) == (1, ())


def test_good_records_beside_an_impossible_one_are_passed_on() -> None:
    records = pb.Records(steps=[make_step(span_s=math.nan), make_step()], num_lost=4)
    told = decode_records(records)
    assert (len(told.steps), told.num_refused, told.num_lost) == (1, 1, 4)


@given(st.binary(max_size=200))
def test_whatever_parses_is_read_or_refused(content: bytes) -> None:
    message = pb.Records()
    try:
        message.ParseFromString(content)
    except Exception:  # noqa: BLE001 # protobuf's own; what is no message never gets further
        return
    told = decode_records(message)
    num_told = len(told.steps) + len(told.requests) + (told.standing is not None)
    num_sent = len(message.steps) + len(message.requests) + message.HasField("snapshot")
    assert num_told + told.num_refused == num_sent
