"""What a sidecar says is within bounds, or not taken.

It comes from a pod that anything may have happened to, and is kept for as long as that pod lives.
"""

import re
from itertools import pairwise
from math import ceil, log

from pipelineserve.api.status import MAX_PIPELINES
from pipelineserve.policy.control.histograms import LEAST_VALUE_S, MOST_VALUE_S, Histogram
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_operator.attend.refusals import Refusal, RefusedError

_MOST_COUNT = 2**53
_MOST_GENERATION = 2**63 - 1
_MAX_REASON = re.compile(r"[a-z0-9_]{0,64}")
_MAX_WORDS = 2000
_ERROR_RATIO = Histogram().error_ratio
_LOG_GROWTH = log((1.0 + _ERROR_RATIO) / (1.0 - _ERROR_RATIO))
LEAST_BUCKET = ceil(log(LEAST_VALUE_S) / _LOG_GROWTH)
MOST_BUCKET = ceil(log(MOST_VALUE_S) / _LOG_GROWTH)


def check_status(status: pb.ControllerStatus) -> None:
    """Let a status pass whose every number can be counted with.

    Raises:
        RefusedError: names every field that is out of bounds.
    """
    faults = [
        name
        for name, is_good in (
            ("replica_index", status.replica_index < MAX_PIPELINES),
            ("received_generation", 0 <= status.received_generation <= _MOST_GENERATION),
            ("applied_generation", 0 <= status.applied_generation <= _MOST_GENERATION),
            ("reason", _MAX_REASON.fullmatch(status.reason) is not None),
            ("feasible_instead", len(status.feasible_instead) <= _MAX_WORDS),
            ("inactive_reason", len(status.inactive_reason) <= _MAX_WORDS),
            ("ttft", _is_histogram(status.ttft)),
            ("tpot", _is_histogram(status.tpot)),
            ("num_requests", status.num_requests <= _MOST_COUNT),
            ("num_attained", status.num_attained <= status.num_requests),
        )
        if not is_good
    ]
    if faults:
        raise RefusedError(Refusal.MALFORMED_STATUS, f"status: out of bounds: {', '.join(faults)}")


def histogram_of(message: pb.LatencyHistogram) -> Histogram:
    """The counts of a status that was let pass."""
    return Histogram(buckets=tuple(zip(message.bucket_indices, message.counts, strict=True)))


def _is_histogram(message: pb.LatencyHistogram) -> bool:
    """Whether its buckets are in order, of our scale, and each holds something.

    Order and scale bound their number.
    """
    indices, counts = message.bucket_indices, message.counts
    if len(indices) != len(counts):
        return False
    if not indices:
        return True
    return (
        indices[0] >= LEAST_BUCKET
        and indices[-1] <= MOST_BUCKET
        and all(before < after for before, after in pairwise(indices))
        and all(1 <= count <= _MOST_COUNT for count in counts)
    )
