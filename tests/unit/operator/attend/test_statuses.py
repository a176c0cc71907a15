"""What a sidecar says is let pass only if it can be counted with."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attend_parts import status
from pipelineserve.policy.control.histograms import Histogram
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_operator.attend.refusals import RefusedError
from pipelineserve_operator.attend.statuses import (
    LEAST_BUCKET,
    MOST_BUCKET,
    check_status,
    histogram_of,
)


def message_of(histogram: Histogram) -> pb.LatencyHistogram:
    return pb.LatencyHistogram(
        bucket_indices=[index for index, _ in histogram.buckets],
        counts=[count for _, count in histogram.buckets],
    )


def buckets(indices: list[int], counts: list[int]) -> pb.LatencyHistogram:
    return pb.LatencyHistogram(bucket_indices=indices, counts=counts)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(min_value=1.1e-6, max_value=1e9), max_size=50))
def test_every_histogram_of_latencies_passes_and_comes_back_as_it_was(
    latencies_s: list[float],
) -> None:
    histogram = Histogram().plus(latencies_s)
    message = status(ttft=message_of(histogram), num_requests=1)
    check_status(message)
    assert histogram_of(message.ttft) == histogram


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"replica_index": 1000}, "replica_index"),
        ({"received_generation": -1}, "received_generation"),
        ({"applied_generation": -5}, "applied_generation"),
        ({"reason": "Because\nof"}, "reason"),
        ({"reason": "x" * 65}, "reason"),
        ({"feasible_instead": "x" * 2001}, "feasible_instead"),
        ({"inactive_reason": "x" * 2001}, "inactive_reason"),
        ({"num_requests": 1, "num_attained": 2}, "num_attained"),
        ({"num_requests": 2**60}, "num_requests"),
        ({"ttft": buckets([1, 2], [1])}, "ttft"),
        ({"ttft": buckets([2, 1], [1, 1])}, "ttft"),
        ({"ttft": buckets([1, 1], [1, 1])}, "ttft"),
        ({"ttft": buckets([1], [0])}, "ttft"),
        ({"tpot": buckets([1], [2**60])}, "tpot"),
        ({"tpot": buckets([LEAST_BUCKET - 1], [1])}, "tpot"),
        ({"tpot": buckets([MOST_BUCKET + 1], [1])}, "tpot"),
    ],
)
def test_a_field_out_of_bounds_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RefusedError, match=named):
        check_status(status(**{"num_requests": 0, **fields}))


def test_words_of_a_newer_sidecar_that_are_not_known_here_are_no_fault() -> None:
    # Field 999, a text, as a later release might add it.
    newer = pb.ControllerStatus.FromString(status().SerializeToString() + b"\xba\x3e\x03new")
    check_status(newer)
    assert newer.inactive_reason == ""


def test_all_faults_are_named_together() -> None:
    with pytest.raises(RefusedError, match="replica_index, reason, ttft"):
        check_status(status(replica_index=5000, reason="?", ttft=buckets([1], [])))
