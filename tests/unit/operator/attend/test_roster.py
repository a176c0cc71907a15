"""Offers reach all streams of their resource, newest last; reports are what was said last."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attend_parts import offered, status
from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve_operator.attend.attendance import Attendance
from pipelineserve_operator.attend.refusals import Refusal, RefusedError
from pipelineserve_operator.attend.roster import FIGURES_S, KEPT_S, Roster
from pipelineserve_operator.attend.tokens import PodIdentity


class Clock:
    """Shows what a test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


class Kept:
    """A roster, its clock, and what it told on."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.changed: list[str] = []
        self.roster = Roster(self.changed.append, self.clock)

    def at(self, moment_s: float) -> Roster:
        """The roster at this moment."""
        self.clock.now_s = moment_s
        return self.roster


def pod(index: int = 0) -> PodIdentity:
    return PodIdentity("models", "small-pods", f"small-r{index}-e0-0", f"pod-{index}", 1e12)


def told(attendance: Attendance) -> int | None:
    """The generation that is told now; None if nothing is."""
    objectives = attendance.news()
    return None if objectives is None else objectives.generation


def refusal_of(attendance: Attendance) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        attendance.news()
    return caught.value.refusal


def test_a_new_offer_is_told_to_every_stream_of_its_resource_and_to_no_other() -> None:
    roster = Kept().roster
    roster.offer(offered(1, num_pods=2))
    other = offered(1, uid="other", pod_uids=frozenset({"pod-9"}))
    roster.offer(other)
    streams = [roster.join(pod(index)) for index in (0, 1)]
    of_other = roster.join(pod(9))
    assert [told(stream) for stream in (*streams, of_other)] == [1, 1, 1]
    roster.offer(offered(2, num_pods=2))
    assert [told(stream) for stream in (*streams, of_other)] == [2, 2, None]


def test_what_was_told_is_not_told_again() -> None:
    roster = Kept().roster
    roster.offer(offered(1))
    stream = roster.join(pod())
    assert told(stream) == 1
    roster.offer(offered(1, num_pods=3))
    assert told(stream) is None


def test_an_older_generation_is_not_told_after_a_newer_one() -> None:
    roster = Kept().roster
    roster.offer(offered(5))
    roster.offer(offered(4))
    stream = roster.join(pod())
    assert told(stream) == 5
    roster.offer(offered(3))
    assert told(stream) is None


@given(st.lists(st.one_of(st.integers(1, 9), st.none()), max_size=30))
@settings(max_examples=200, deadline=None)
def test_whatever_is_offered_and_read_in_between_generations_only_rise_to_the_newest(
    script: list[int | None],
) -> None:
    roster = Kept().roster
    roster.offer(offered(1))
    stream = roster.join(pod())
    seen = []
    for generation in [*script, None]:
        if generation is None:
            seen.append(told(stream))
        else:
            roster.offer(offered(generation))
    heard = [generation for generation in seen if generation is not None]
    assert heard == sorted(set(heard))
    assert heard[-1] == max([1, *(generation for generation in script if generation)])


@pytest.mark.parametrize(
    ("identity", "refusal", "named"),
    [
        (replace(pod(), pod_uid="pod-7"), Refusal.UNKNOWN_POD, "models/small-r0-e0-0"),
        (replace(pod(), namespace="others"), Refusal.OTHER_NAMESPACE, "models, got others"),
        (replace(pod(), service_account="default"), Refusal.OTHER_ACCOUNT, "small-pods"),
    ],
)
def test_who_is_not_of_the_resource_does_not_join(
    identity: PodIdentity, refusal: Refusal, named: str
) -> None:
    roster = Kept().roster
    roster.offer(offered())
    with pytest.raises(RefusedError, match=named) as caught:
        roster.join(identity)
    assert caught.value.refusal is refusal
    assert roster.num_streams == 0


def test_a_status_about_another_resource_is_refused_and_not_kept() -> None:
    roster = Kept().roster
    roster.offer(offered())
    stream = roster.join(pod())
    with pytest.raises(RefusedError) as caught:
        roster.hear(stream, pb.ControllerStatus(resource_uid="other"))
    assert caught.value.refusal is Refusal.OTHER_RESOURCE
    assert roster.reports("uid") == roster.reports("other") == ()


def test_a_second_stream_of_a_pod_ends_the_first_whose_words_count_no_more() -> None:
    kept = Kept()
    kept.roster.offer(offered())
    first = kept.roster.join(pod())
    second = kept.roster.join(pod())
    assert refusal_of(first) is Refusal.REPLACED
    kept.roster.hear(second, status(applied_generation=2))
    kept.roster.hear(first, status(applied_generation=1))
    kept.roster.leave(first)
    (report,) = kept.roster.reports("uid")
    assert (report.is_connected, report.status.applied_generation) == (True, 2)
    assert kept.roster.num_streams == 1


def test_a_pod_that_is_no_longer_its_resource_s_is_dismissed() -> None:
    kept = Kept()
    kept.roster.offer(offered(num_pods=2))
    streams = [kept.roster.join(pod(index)) for index in (0, 1)]
    kept.roster.hear(streams[1], status(1))
    kept.roster.offer(offered(num_pods=1))
    assert refusal_of(streams[1]) is Refusal.WITHDRAWN
    assert told(streams[0]) == 1
    assert [report.is_connected for report in kept.roster.reports("uid")] == [False]
    with pytest.raises(RefusedError):
        kept.roster.join(pod(1))


def test_a_resource_that_is_withdrawn_has_no_streams_and_no_reports() -> None:
    kept = Kept()
    kept.roster.offer(offered())
    stream = kept.roster.join(pod())
    kept.roster.hear(stream, status())
    kept.roster.withdraw("uid")
    kept.roster.withdraw("uid")
    assert refusal_of(stream) is Refusal.WITHDRAWN
    kept.roster.leave(stream)
    assert kept.roster.reports("uid") == ()
    with pytest.raises(RefusedError):
        kept.roster.join(pod())


def test_a_pod_that_two_resources_claim_stays_the_first_one_s() -> None:
    roster = Kept().roster
    roster.offer(offered())
    stream = roster.join(pod())
    roster.offer(offered(9, uid="thief", spec_json="{}"))
    assert told(stream) == 1
    roster.withdraw("thief")
    assert told(stream) is None
    assert roster.join(pod()).uid == "uid"


def test_reports_come_by_replica_and_outlast_their_streams_for_a_while() -> None:
    kept = Kept()
    kept.roster.offer(offered(num_pods=2))
    streams = [kept.roster.join(pod(index)) for index in (1, 0)]
    for index, stream in zip((1, 0), streams, strict=True):
        kept.roster.hear(stream, status(index))
    kept.roster.leave(streams[0])
    reports = kept.at(KEPT_S).reports("uid")
    assert [(report.replica_index, report.is_connected) for report in reports] == [
        (0, True),
        (1, False),
    ]
    assert [report.replica_index for report in kept.at(KEPT_S + 1.0).reports("uid")] == [0]


def test_news_are_told_on_at_once_and_figures_now_and_then() -> None:
    kept = Kept()
    kept.roster.offer(offered())
    stream = kept.roster.join(pod())

    def num_told_on(moment_s: float, message: pb.ControllerStatus) -> int:
        kept.at(moment_s).hear(stream, message)
        return len(kept.changed)

    assert num_told_on(0.0, status(num_requests=1)) == 1
    assert num_told_on(1.0, status(num_requests=2)) == 1
    assert num_told_on(2.0, status(num_requests=2, applied_generation=1)) == 2
    assert num_told_on(3.0, status(num_requests=3, applied_generation=1)) == 2
    assert num_told_on(2.0 + FIGURES_S, status(num_requests=3, applied_generation=1)) == 3
    assert num_told_on(99.0, status(num_requests=3, applied_generation=1)) == 3
    kept.roster.leave(stream)
    assert kept.changed == ["uid"] * 4
    stream = kept.roster.join(pod())
    assert num_told_on(100.0, status(num_requests=3, applied_generation=1)) == 5
