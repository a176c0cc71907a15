"""The order of the waiting queue and its size under churn."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.ordering import Arrival
from pipelineserve.scheduler.fairness import FairnessLedger
from pipelineserve.scheduler.requests import Request
from pipelineserve.scheduler.waiting import WaitingQueue
from scheduling import make_live_request


def make_queue(fairness: FairnessLedger | None = None) -> WaitingQueue:
    return WaitingQueue(Arrival(), fairness or FairnessLedger())


def drained(queue: WaitingQueue) -> list[str]:
    order = []
    while (head := queue.head()) is not None:
        order.append(head.request_id)
        queue.remove(head)
    return order


def test_an_empty_queue_has_no_head() -> None:
    assert make_queue().head() is None


def test_goes_by_arrival_within_a_client() -> None:
    queue = make_queue()
    for arrival_s in (3.0, 1.0, 2.0):
        queue.push(make_live_request(f"at {arrival_s}", arrival_s=arrival_s))
    assert drained(queue) == ["at 1.0", "at 2.0", "at 3.0"]


def test_equal_arrivals_go_by_order_of_submission() -> None:
    queue = make_queue()
    for index in (2, 0, 1):
        queue.push(make_live_request(f"{index}", submit_index=index))
    assert drained(queue) == ["0", "1", "2"]


def test_the_highest_priority_goes_first_however_late() -> None:
    queue = make_queue()
    queue.push(make_live_request("early", arrival_s=1.0))
    queue.push(make_live_request("late", arrival_s=9.0, priority=1))
    assert drained(queue) == ["late", "early"]


def test_the_least_served_client_goes_first_however_late() -> None:
    fairness = FairnessLedger()
    fairness.join("heavy")
    fairness.join("light")
    fairness.charge("heavy", prompt_tokens=1)
    queue = make_queue(fairness)
    queue.push(make_live_request("h", arrival_s=1.0, client_id="heavy"))
    queue.push(make_live_request("l", arrival_s=2.0, client_id="light"))
    assert drained(queue) == ["l", "h"]


def test_counts_requests_and_their_tokens() -> None:
    queue = make_queue()
    first, second = make_live_request("a", 3), make_live_request("b", 4)
    queue.push(first)
    queue.push(second)
    assert (len(queue), queue.num_tokens, set(queue)) == (2, 7, {first, second})
    queue.remove(first)
    assert (len(queue), queue.num_tokens, set(queue)) == (1, 4, {second})


def test_tells_new_requests_from_preempted_ones() -> None:
    queue = make_queue()
    preempted = make_live_request("preempted")
    preempted.num_requeues = 1
    queue.push(preempted)
    queue.push(make_live_request("new"))
    assert (len(queue), queue.num_new) == (2, 1)
    queue.remove(preempted)
    assert (len(queue), queue.num_new) == (1, 1)


def test_a_request_that_left_and_came_back_is_there_once() -> None:
    queue = make_queue()
    request = make_live_request("a", arrival_s=5.0)
    queue.push(request)
    queue.push(make_live_request("b", arrival_s=6.0))
    queue.remove(request)
    queue.push(request)
    assert drained(queue) == ["a", "b"]


def test_an_id_used_again_waits_at_its_new_place() -> None:
    queue = make_queue()
    first = make_live_request("a", arrival_s=1.0)
    queue.push(first)
    queue.push(make_live_request("b", arrival_s=2.0))
    queue.remove(first)
    queue.push(make_live_request("a", arrival_s=3.0, submit_index=3))
    assert drained(queue) == ["b", "a"]


def test_removed_requests_leave_nothing_behind_in_a_class_that_is_never_asked() -> None:
    queue = make_queue()
    queue.push(make_live_request("first", priority=9))
    stays = make_live_request("stays")
    queue.push(stays)
    for index in range(10_000):
        passing = make_live_request(f"{index}", prompt=(1,))
        queue.push(passing)
        queue.remove(passing)
        assert queue.head() is not stays
    assert len(queue._classes[0]._clients[""].heap) < 50


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 5), st.booleans()),
        max_size=40,
    )
)
def test_the_head_is_what_sorting_everything_would_give(
    pushes: list[tuple[int, str, int, bool]],
) -> None:
    queue = make_queue()
    waiting: list[Request] = []
    for index, (priority, client_id, arrival_s, takes_head) in enumerate(pushes):
        request = make_live_request(
            f"{index}",
            client_id=client_id,
            priority=priority,
            arrival_s=arrival_s,
            submit_index=index,
        )
        queue.push(request)
        waiting.append(request)
        first = min(waiting, key=lambda r: r.seniority)  # nobody was served: one order for all
        assert queue.head() is first
        if takes_head:
            queue.remove(first)
            waiting.remove(first)
    assert len(queue) == len(waiting)
