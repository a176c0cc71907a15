"""What several replicas say comes to one word on their resource."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attend_parts import status
from pipelineserve.api import PipelineServeSpec, parse_resource
from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.histograms import Histogram
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_operator.findings import Finding, LinkReason, ResourceReport
from pipelineserve_operator.link import Report
from pipelineserve_operator.merge import RECONNECT_S, SETTLING_S, merge

NOW_S = 1000.0
RESOURCE = """
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {name: small}
spec:
  model: {uri: file:///model}
  parallelism: {stages: 2}
  slo: {ttft: {percentile: 90, milliseconds: 1000}, tpot: {percentile: 50, milliseconds: 100}}
"""


def spec(replicas: int = 1, mode: str = "Active") -> PipelineServeSpec:
    text = f"{RESOURCE}  replicas: {replicas}\n  control: {{mode: {mode}}}\n"
    return parse_resource(text, "the test's resource").spec


def message_of(latencies_s: Sequence[float]) -> pb.LatencyHistogram:
    pairs = Histogram().plus(latencies_s).buckets
    return pb.LatencyHistogram(
        bucket_indices=[index for index, _ in pairs], counts=[count for _, count in pairs]
    )


def report(
    index: int = 0,
    ttft_s: Sequence[float] = (),
    tpot_s: Sequence[float] = (),
    *,
    is_connected: bool = True,
    heard_at_s: float = NOW_S,
    **fields: Any,
) -> Report:
    """A replica with these latencies that fares well unless a field says otherwise."""
    said: dict[str, Any] = {
        "applied_generation": 1,
        "received_generation": 1,
        "is_engine_connected": True,
        "is_control_effective": True,
        "are_metrics_fresh": True,
        "slo_met": pb.VERDICT_TRUE,
        "slo_feasible": pb.VERDICT_TRUE,
        "reason": "demand_met",
        "ttft": message_of(ttft_s),
        "tpot": message_of(tpot_s),
        "num_requests": len(ttft_s),
        "num_attained": len(ttft_s),
    }
    return Report(
        uid="uid",
        pod_uid=f"pod-{index}",
        pod_name=f"small-r{index}-e0-0",
        replica_index=index,
        heard_at_s=heard_at_s,
        is_connected=is_connected,
        status=status(index, **{**said, **fields}),
    )


def merged(
    *reports: Report, wanted: PipelineServeSpec | None = None, began_at_s: float = 0.0
) -> ResourceReport:
    target = wanted or spec(len(reports))
    return merge(reports, target, now_s=NOW_S, began_at_s=began_at_s)


def verdict(finding: Finding) -> tuple[Answer, LinkReason]:
    return finding.answer, finding.reason


def test_one_good_replica_is_a_good_resource() -> None:
    one = merged(report(0, [0.5] * 10, [0.05] * 10))
    assert [
        verdict(finding)
        for finding in (one.connected, one.effective, one.fresh, one.slo_met, one.slo_feasible)
    ] == [
        (Answer.YES, LinkReason.ALL_CONNECTED),
        (Answer.YES, LinkReason.EFFECTIVE),
        (Answer.YES, LinkReason.FRESH),
        (Answer.YES, LinkReason.TARGETS_MET),
        (Answer.YES, LinkReason.FEASIBLE),
    ]
    assert (one.num_requests, one.attainment_ratio, one.applied_generation) == (10, 1.0, 1)
    assert (one.reason, one.is_conclusive, one.look_again_at_s) == ("demand_met", True, None)


def test_percentiles_are_those_of_all_requests_together_and_not_averages() -> None:
    # Of 100 requests 16 are slow, so the 90th percentile is, though three replicas are fast.
    fast = [report(index, [0.1] * 28, [0.01] * 28) for index in range(3)]
    slow = report(3, [5.0] * 16, [0.01] * 16, slo_met=pb.VERDICT_FALSE)
    one = merged(*fast, slow)
    assert one.ttft_s == pytest.approx(5.0, rel=0.02)
    assert one.tpot_s == pytest.approx(0.01, rel=0.02)
    assert verdict(one.slo_met) == (Answer.NO, LinkReason.TARGETS_MISSED)
    assert "TTFT" in one.slo_met.message
    assert "TPOT" not in one.slo_met.message


def test_a_slow_replica_with_few_requests_does_not_miss_the_target_for_all() -> None:
    slow = report(1, [5.0], [0.01], slo_met=pb.VERDICT_FALSE)
    one = merged(report(0, [0.1] * 99, [0.01] * 99), slow)
    assert verdict(one.slo_met) == (Answer.YES, LinkReason.TARGETS_MET)


@given(st.lists(st.lists(st.floats(0.001, 50.0), max_size=20), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_however_requests_are_spread_over_replicas_percentiles_are_the_same(
    latencies_s: list[list[float]],
) -> None:
    spread = merged(*(report(index, ttft_s) for index, ttft_s in enumerate(latencies_s)))
    together = merged(report(0, [value for part in latencies_s for value in part]))
    assert spread.ttft_s == together.ttft_s
    assert spread.num_requests == together.num_requests
    assert verdict(spread.slo_met) == verdict(together.slo_met)


def test_without_traffic_nothing_is_known_of_targets() -> None:
    one = merged(report(0, slo_met=pb.VERDICT_UNKNOWN), report(1, slo_met=pb.VERDICT_UNKNOWN))
    assert verdict(one.slo_met) == (Answer.UNKNOWN, LinkReason.NO_TRAFFIC)
    assert (one.ttft_s, one.attainment_ratio) == (None, None)


def test_a_queue_in_which_everybody_waits_in_vain_misses_the_target() -> None:
    one = merged(report(0, slo_met=pb.VERDICT_FALSE))
    assert verdict(one.slo_met) == (Answer.NO, LinkReason.TARGETS_MISSED)


def test_stale_measurements_count_for_nothing_and_are_named() -> None:
    stale = report(1, [9.0] * 100, [9.0] * 100, are_metrics_fresh=False)
    one = merged(report(0, [0.1] * 10, [0.01] * 10), stale)
    assert verdict(one.fresh) == (Answer.NO, LinkReason.STALE)
    assert "replica 1:" in one.fresh.message
    assert verdict(one.slo_met) == (Answer.YES, LinkReason.TARGETS_MET)
    assert one.num_requests == 10
    assert verdict(merged(replace(stale, replica_index=0)).slo_met) == (
        Answer.UNKNOWN,
        LinkReason.NO_REPORT,
    )


def test_a_replica_that_is_not_heard_is_named_and_no_generation_is_applied_by_all() -> None:
    one = merged(report(0), report(2), wanted=spec(4))
    assert verdict(one.connected) == (Answer.NO, LinkReason.NOT_CONNECTED)
    assert one.connected.message.startswith("replicas 1, 3:")
    assert (one.applied_generation, one.received_generation) == (None, None)
    assert one.applied == ((0, 1), (2, 1))
    assert one.effective.answer is one.fresh.answer is Answer.UNKNOWN


def test_the_oldest_generation_that_a_replica_runs_is_the_one_that_all_run() -> None:
    one = merged(
        report(0, applied_generation=4, received_generation=5),
        report(1, applied_generation=5, received_generation=6),
    )
    assert (one.applied_generation, one.received_generation) == (4, 5)


def test_a_stream_that_ended_a_moment_ago_still_counts_and_says_when_it_no_longer_does() -> None:
    gone = report(0, is_connected=False, heard_at_s=NOW_S - RECONNECT_S + 5.0)
    one = merged(gone)
    assert one.connected.answer is Answer.YES
    assert one.look_again_at_s == NOW_S + 5.0
    longer = merged(replace(gone, heard_at_s=NOW_S - RECONNECT_S))
    assert longer.connected.answer is Answer.NO


def test_of_an_old_and_a_new_pod_of_a_replica_the_connected_one_counts() -> None:
    old = report(0, is_connected=False, applied_generation=1)
    new = replace(report(0, applied_generation=2, heard_at_s=NOW_S - 3.0), pod_uid="new")
    assert merged(new, old, wanted=spec(1)).applied_generation == 2


def test_replicas_that_are_no_longer_wanted_do_not_count() -> None:
    one = merged(report(0), report(1, is_control_effective=False), wanted=spec(1))
    assert one.effective.answer is Answer.YES


def test_just_after_the_operator_began_nothing_is_concluded_from_silence() -> None:
    began_at_s = NOW_S - 10.0
    one = merged(report(0), wanted=spec(2), began_at_s=began_at_s)
    assert (one.is_conclusive, one.look_again_at_s) == (False, began_at_s + SETTLING_S)
    assert merged(report(0), report(1), began_at_s=began_at_s).is_conclusive
    assert merged(report(0), wanted=spec(2), began_at_s=NOW_S - SETTLING_S).is_conclusive


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("Advisory", LinkReason.MODE_ADVISORY), ("Paused", LinkReason.MODE_PAUSED)],
)
def test_by_choice_of_mode_control_is_neither_effective_nor_not(
    mode: str, reason: LinkReason
) -> None:
    one = merged(report(0, is_control_effective=False), wanted=spec(1, mode))
    assert verdict(one.effective) == (Answer.UNKNOWN, reason)


def test_a_replica_without_a_policy_in_force_is_named() -> None:
    one = merged(report(0), report(1, is_control_effective=False))
    assert verdict(one.effective) == (Answer.NO, LinkReason.NOT_EFFECTIVE)
    assert "replica 1:" in one.effective.message
    apart = merged(report(0, is_engine_connected=False, is_control_effective=False))
    assert verdict(apart.effective) == (Answer.NO, LinkReason.ENGINE_DISCONNECTED)


def test_an_engine_that_cannot_be_controlled_says_why() -> None:
    why = "SGLang 0.4: expected 0.5.22 or 0.5.23"
    inactive: dict[str, Any] = {"is_control_effective": False, "inactive_reason": why}
    one = merged(report(0, is_control_effective=False), *(report(i, **inactive) for i in (1, 2)))
    assert verdict(one.effective) == (Answer.NO, LinkReason.ENGINE_INACTIVE)
    assert one.effective.message == (
        f"replicas 1, 2: the engine serves but cannot be controlled: {why}"
    )
    assert LinkReason.ENGINE_INACTIVE.value == "EngineInactive"


def test_targets_that_one_replica_cannot_meet_are_not_feasible_and_its_words_are_passed_on() -> (
    None
):
    words = "TPOT of 140 ms could be met"
    one = merged(
        report(0, slo_feasible=pb.VERDICT_UNKNOWN),
        report(1, slo_feasible=pb.VERDICT_FALSE, feasible_instead=words),
    )
    assert verdict(one.slo_feasible) == (Answer.NO, LinkReason.INFEASIBLE)
    assert one.slo_feasible.message == f"replica 1: {words}"
    unknown = merged(report(0), report(1, slo_feasible=pb.VERDICT_UNKNOWN))
    assert verdict(unknown.slo_feasible) == (Answer.UNKNOWN, LinkReason.NOT_KNOWN_YET)


def test_scaled_to_zero_everything_is_unknown_by_choice() -> None:
    one = merged(wanted=spec(0))
    findings = (one.connected, one.effective, one.fresh, one.slo_met, one.slo_feasible)
    assert {verdict(finding) for finding in findings} == {
        (Answer.UNKNOWN, LinkReason.SCALED_TO_ZERO)
    }
    assert one.is_conclusive


def test_the_reason_is_the_one_that_most_replicas_give() -> None:
    reasons = ["kv_pressure", "demand_met", "demand_met"]
    assert merged(*(report(i, reason=r) for i, r in enumerate(reasons))).reason == "demand_met"


_VERDICTS = st.sampled_from([0, 1, 2, 3, 7])


@given(
    st.lists(
        st.builds(
            report,
            index=st.integers(0, 4),
            ttft_s=st.lists(st.floats(0.001, 5.0), max_size=3),
            is_connected=st.booleans(),
            heard_at_s=st.floats(0.0, NOW_S),
            are_metrics_fresh=st.booleans(),
            is_control_effective=st.booleans(),
            is_engine_connected=st.booleans(),
            slo_met=_VERDICTS,
            slo_feasible=_VERDICTS,
        ),
        max_size=8,
    ),
    st.integers(0, 4),
    st.sampled_from(["Active", "Advisory", "Paused"]),
)
@settings(max_examples=150, deadline=None)
def test_whatever_is_said_a_yes_needs_every_replica(
    reports: list[Report], replicas: int, mode: str
) -> None:
    one = merged(*reports, wanted=spec(replicas, mode))
    for finding in (one.connected, one.effective, one.fresh):
        if finding.answer is Answer.YES:
            assert len(one.applied) == replicas
    assert 0 <= one.num_attained <= one.num_requests
    assert {index for index, _ in one.applied} <= set(range(replicas))
