"""Triage of the waiting queue on the scheduler."""

from dataclasses import dataclass

import pytest

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.ordering import Arrival
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.triage import Triage, TriageView
from pipelineserve.scheduler.fairness import FairnessLedger
from pipelineserve.scheduler.requests import Request
from pipelineserve.scheduler.waiting import WaitingQueue
from policy_views import line_model, make_load_view, prompts_of
from scheduling import Pipeline, make_live_request, make_request, make_settings
from scheduling_invariants import check_drained, check_running

# No share for those who are late, so that the order is plain.
POLICY = Triage(ttft_target_s=2.0, late_share_ratio=0.0)
CHUNKING = Static(64)


@dataclass
class Crowd:
    """A queue under triage that is served at 1,000 tokens per second."""

    queue: WaitingQueue
    num: int = 0

    def push(
        self, request_id: str, tokens: int, arrival_s: float, *, client_id: str = "",
        priority: int = 0, num_requeues: int = 0,
    ) -> Request:  # fmt: skip
        """Let a request arrive."""
        request = make_live_request(
            request_id, tokens, client_id=client_id, priority=priority,
            arrival_s=arrival_s, submit_index=self.num,
        )  # fmt: skip
        request.num_requeues = num_requeues
        self.num += 1
        self.queue.push(request)
        return request

    def sort_out(self, now_s: float, started_tokens: int = 0) -> None:
        """Before a micro-batch."""
        started = prompts_of(started_tokens) if started_tokens else prompts_of()
        self.queue.sort_out(make_load_view(now_s=now_s, started=started), CHUNKING)

    def order(self) -> list[str]:
        """Start them one after the other."""
        order = []
        while (head := self.queue.head()) is not None:
            order.append(head.request_id)
            self.queue.start(head)
        return order


def a_crowd(policy: Triage = POLICY, fairness: FairnessLedger | None = None) -> Crowd:
    queue = WaitingQueue(policy, fairness or FairnessLedger())
    assert queue.triaging is not None
    queue.triaging.pace.note_launch(1000, 0.0, leaves_prompts=True)
    queue.triaging.pace.note_launch(1000, 1.0, leaves_prompts=False)
    return Crowd(queue)


def test_the_largest_goes_to_the_back_when_not_all_can_be_in_time() -> None:
    crowd = a_crowd()
    crowd.push("large", 1500, 9.5)
    for index in range(3):
        crowd.push(f"{index}", 300, 9.6)
    crowd.sort_out(10.0)
    assert crowd.order() == ["0", "1", "2", "large"]


def test_before_anything_is_sorted_out_the_order_is_that_of_arrival() -> None:
    crowd = a_crowd()
    crowd.push("large", 1500, 9.5)
    crowd.push("small", 300, 9.6)
    assert crowd.order() == ["large", "small"]


def test_a_lull_takes_the_mark_back() -> None:
    crowd = a_crowd()
    crowd.push("large", 1500, 9.5)
    small = [crowd.push(f"{index}", 300, 9.6) for index in range(3)]
    crowd.sort_out(10.0)
    for request in small:
        crowd.queue.remove(request)
    crowd.push("new", 100, 9.7)
    crowd.sort_out(9.9)
    assert crowd.order() == ["large", "new"]


def test_who_is_past_the_deadline_is_late_for_good() -> None:
    crowd = a_crowd()
    crowd.push("old", 10, 7.9)
    crowd.push("new", 900, 9.9)
    crowd.sort_out(10.0)
    crowd.sort_out(7.9)  # even if time went backwards
    assert crowd.order() == ["new", "old"]


def test_started_prompts_go_first_in_any_case() -> None:
    crowd = a_crowd()
    crowd.push("large", 900, 9.9)
    crowd.push("small", 300, 9.95)
    crowd.sort_out(10.0)
    assert crowd.queue.head() is not None
    assert crowd.order() == ["large", "small"]
    crowd = a_crowd()
    crowd.push("large", 900, 9.9)
    crowd.push("small", 300, 9.95)
    crowd.sort_out(10.0, started_tokens=900)
    assert crowd.order() == ["small", "large"]


def test_a_preempted_request_goes_first_and_its_work_counts() -> None:
    crowd = a_crowd()
    crowd.push("back", 1000, 2.0, num_requeues=1)
    crowd.push("large", 900, 9.9)
    crowd.push("small", 300, 9.95)
    crowd.sort_out(10.0)
    assert crowd.order() == ["back", "small", "large"]


def test_a_preempted_request_goes_before_what_is_owed_to_those_who_are_late() -> None:
    crowd = a_crowd(Triage(ttft_target_s=2.0, late_share_ratio=0.5))
    crowd.push("late", 100, 1.0)
    first = crowd.push("first", 100, 9.5)
    crowd.push("last", 100, 9.6)
    crowd.sort_out(10.0)
    crowd.queue.start(first)
    head = crowd.queue.head()
    assert head is not None
    assert head.request_id == "late"
    crowd.push("back", 100, 2.0, num_requeues=1)
    assert crowd.order()[0] == "back"


def test_late_ones_get_their_share_oldest_first() -> None:
    crowd = a_crowd(Triage(ttft_target_s=2.0, late_share_ratio=0.5))
    for index in range(4):
        crowd.push(f"late {index}", 100, 1.0 + index)
    for index in range(4):
        crowd.push(f"{index}", 100, 9.5 + index / 10)
    crowd.sort_out(10.0)
    assert crowd.order() == ["0", "late 0", "1", "late 1", "2", "late 2", "3", "late 3"]


def test_who_is_cancelled_is_not_charged() -> None:
    crowd = a_crowd(Triage(ttft_target_s=2.0, late_share_ratio=0.5))
    crowd.push("late", 100, 1.0)
    cancelled = crowd.push("cancelled", 100, 9.5)
    crowd.push("new", 100, 9.6)
    crowd.sort_out(10.0)
    crowd.queue.remove(cancelled)
    assert crowd.order() == ["new", "late"]


def test_a_higher_class_goes_first_however_late() -> None:
    crowd = a_crowd()
    crowd.push("in time", 100, 9.9)
    crowd.push("late", 100, 1.0, priority=1)
    crowd.sort_out(10.0)
    assert crowd.order() == ["late", "in time"]


def test_clients_have_fair_turns_among_those_in_time() -> None:
    fairness = FairnessLedger()
    for client_id in ("heavy", "light"):
        fairness.join(client_id)
    fairness.charge("heavy", prompt_tokens=1)
    crowd = a_crowd(fairness=fairness)
    crowd.push("late", 100, 1.0, client_id="light")
    crowd.push("h", 100, 9.5, client_id="heavy")
    crowd.push("l", 100, 9.6, client_id="light")
    crowd.sort_out(10.0)
    assert crowd.order() == ["l", "h", "late"]


def test_another_order_takes_all_marks_away_and_back() -> None:
    crowd = a_crowd()
    crowd.push("late", 100, 1.0)
    crowd.push("new", 100, 9.5)
    crowd.sort_out(10.0)
    crowd.queue.reorder(Arrival())
    head = crowd.queue.head()
    assert head is not None
    assert head.request_id == "late"
    assert crowd.queue.triaging is None
    crowd.queue.reorder(POLICY)
    crowd.sort_out(10.0)
    assert crowd.order() == ["new", "late"]


def test_another_target_keeps_the_pace_that_was_measured() -> None:
    crowd = a_crowd()
    crowd.push("large", 1500, 9.5)
    crowd.queue.reorder(Triage(ttft_target_s=1.0))
    crowd.push("new", 100, 9.9)
    crowd.sort_out(10.0)
    assert crowd.order() == ["new", "large"]


def test_many_hopeful_ones_are_sorted_out_only_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []
    sort_out = Triage.sort_out

    def counted(policy: Triage, view: TriageView) -> object:
        looked_at.append(len(view.waiting))
        return sort_out(policy, view)

    monkeypatch.setattr(Triage, "sort_out", counted)
    crowd = a_crowd()
    for index in range(640):
        crowd.push(f"{index}", 10, 9.5)
    for _ in range(110):
        crowd.sort_out(10.0)
    assert looked_at == [640] * 10
    crowd.sort_out(20.0)
    crowd.sort_out(20.0)
    assert sum(looked_at) == 6400, "who is past the deadline is looked at no more"


def pipeline(policy: Triage, chunk_tokens: int = 10) -> Pipeline:
    settings = make_settings(num_slots=1, max_context_tokens=200, num_blocks=200)
    return Pipeline(settings, chunk_tokens=chunk_tokens, order=policy)


def run(pipe: Pipeline, seconds: float) -> list[str]:
    """One micro-batch there and back; whose prompts were in it."""
    micro_batch = pipe.launch()
    assert micro_batch is not None
    pipe.now_s += seconds
    pipe.complete()
    check_running(pipe)
    return [piece.request_id for piece in micro_batch.pieces if not piece.is_decode]


def test_the_pace_is_measured_where_no_model_tells_it() -> None:
    pipe = pipeline(Triage(ttft_target_s=12.0, late_share_ratio=0.0))
    pipe.submit(make_request("long", 40, max_output_tokens=1))
    for _ in range(4):
        assert run(pipe, 1.0) == ["long"]  # 10 tokens a second
    pipe.submit(make_request("large", 90, max_output_tokens=1))
    for index in range(3):
        pipe.submit(make_request(f"{index}", 20, max_output_tokens=1))
    first = [run(pipe, 1.0) for _ in range(6)]
    assert first == [["0"], ["0"], ["1"], ["1"], ["2"], ["2"]]
    pipe.drain()
    check_drained(pipe)


def test_a_started_prompt_is_never_interrupted() -> None:
    pipe = pipeline(Triage(ttft_target_s=12.0, late_share_ratio=0.0))
    pipe.submit(make_request("large", 90, max_output_tokens=1))
    run(pipe, 1.0)
    pipe.submit(make_request("small", 5, max_output_tokens=1))
    for _ in range(8):
        assert run(pipe, 1.0) == ["large"]
    assert run(pipe, 1.0) == ["small"]


def test_a_predictive_chunk_promises_the_pace() -> None:
    # 0.01 s and 0.1 ms per token: 1,000 tokens take 0.11 s, so 0.95 · 9,090 tokens a second.
    chunking = Predictive(line_model(), (1000,), None)
    queue = WaitingQueue(POLICY, FairnessLedger())
    crowd = Crowd(queue)
    crowd.push("large", 10_000, 9.5)
    for index in range(3):
        crowd.push(f"{index}", 2500, 9.6)
    queue.sort_out(make_load_view(now_s=10.0), chunking)
    assert crowd.order() == ["0", "1", "2", "large"]


def test_a_controller_may_ask_for_it_while_requests_wait() -> None:
    pipe = Pipeline(make_settings(num_slots=1), chunk_tokens=10)
    pipe.submit(make_request("old", 40, max_output_tokens=1))
    pipe.now_s = 5.0
    pipe.submit(make_request("new", 10, max_output_tokens=1))
    pipe.scheduler.adopt(SchedulingPolicy(Static(10), Triage(ttft_target_s=2.0)))
    assert run(pipe, 1.0) == ["new"]


def test_what_is_lost_with_the_stages_spoils_no_pace() -> None:
    pipe = pipeline(Triage(ttft_target_s=2.0))
    pipe.submit(make_request("long", 40, max_output_tokens=1))
    run(pipe, 1.0)
    run(pipe, 1.0)
    pipe.launch()
    pipe.recall_all()
    pipe.now_s += 1000.0
    pipe.launch()
    triage = pipe.scheduler._waiting.triaging
    assert triage is not None
    assert triage.pace.tokens_per_s == pytest.approx(10.0)
