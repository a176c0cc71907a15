"""Another engine's requests are followed one by one, and the sums over them never drift."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.views import DecodeLoad, PromptLoad
from pipelineserve.scheduler.requests import FinishReason, RequestState
from pipelineserve_engine.addon.tracked_requests import RequestBook


def a_book(*request_ids: str, num_prompt_tokens: int = 10) -> RequestBook:
    book = RequestBook()
    for index, request_id in enumerate(request_ids):
        book.accept(request_id, num_prompt_tokens, float(index))
    return book


def test_a_request_from_its_arrival_to_its_record() -> None:
    book = a_book("a")
    assert book.waiting == PromptLoad(1, 10, 100, 0)
    book.start("a", num_cached_tokens=4, now_s=1.0)
    book.start("a", num_cached_tokens=9, now_s=1.5)
    assert book.waiting == PromptLoad(0, 0, 0, 0)
    assert [book.advance("a", num, at) for num, at in ((1, 2.0), (2, 2.5), (2, 2.6), (3, 4.0))] == [
        1,
        1,
        0,
        1,
    ]
    assert book.decoding == DecodeLoad(1, 13)
    record = book.end("a", FinishReason.LENGTH, 4.0)
    assert record is not None
    assert (record.arrival_s, record.first_issue_s, record.end_s) == (0.0, 1.0, 4.0)
    assert (record.ttft_s, record.tpot_s, record.longest_gap_s) == (2.0, 1.0, 1.5)
    assert (record.num_prompt_tokens, record.num_output_tokens) == (10, 3)
    assert record.num_cached_tokens == 4
    assert book.decoding == DecodeLoad(0, 0)
    assert book.end("a", FinishReason.LENGTH, 5.0) is None


def test_held_time_is_counted_whether_it_is_over_or_not() -> None:
    book = a_book("a")
    book.start("a", 0, 0.0)
    book.advance("a", 1, 1.0)
    request = book.get("a")
    assert request is not None
    book.hold(request, slot_index=1, now_s=2.0)
    assert (book.held, book.decoding) == (DecodeLoad(1, 11), DecodeLoad(0, 0))
    assert (request.is_held, request.home_slot) == (True, 1)
    book.release(request, 3.0)
    assert not request.has_token_since_release
    book.advance("a", 2, 3.5)
    assert request.has_token_since_release
    book.hold(request, 0, 4.0)
    record = book.end("a", FinishReason.CANCELLED, 6.0)
    assert record is not None
    assert record.held_s == 3.0
    assert book.held == DecodeLoad(0, 0)


def test_who_lost_its_kv_waits_with_its_output() -> None:
    book = a_book("a")
    book.start("a", 0, 0.0)
    book.advance("a", 5, 1.0)
    book.requeue("a")
    assert book.waiting == PromptLoad(1, 15, 225, 0)
    assert book.num_decoding == 0
    book.start("a", 0, 2.0)
    book.advance("a", 6, 3.0)
    record = book.end("a", FinishReason.STOP, 3.0)
    assert record is not None
    assert (record.num_requeues, record.first_issue_s, record.longest_gap_s) == (1, 0.0, 2.0)


def test_a_token_that_was_on_its_way_when_the_kv_was_lost_is_prefilled_with_the_rest() -> None:
    book = a_book("a")
    book.start("a", 0, 0.0)
    book.advance("a", 1, 1.0)
    book.requeue("a")
    assert book.advance("a", 2, 1.5) == 1
    assert (book.waiting, book.num_decoding) == (PromptLoad(1, 12, 144, 0), 0)
    book.start("a", 0, 2.0)
    book.advance("a", 3, 2.5)
    assert (book.waiting, book.decoding) == (PromptLoad(0, 0, 0, 0), DecodeLoad(1, 13))


def test_what_is_not_known_changes_nothing() -> None:
    book = a_book("a")
    before = (book.waiting, book.decoding, book.census())
    book.requeue("b")
    book.start("b", 0, 1.0)
    assert book.advance("b", 3, 1.0) == 0
    assert book.end("b", FinishReason.STOP, 1.0) is None
    assert (book.waiting, book.decoding, book.census()) == before


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["accept", "start", "advance", "hold", "release", "requeue", "end"]),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(EVENTS)
def test_sums_are_those_of_the_requests_and_nobody_is_lost(events: list[tuple[str, int]]) -> None:
    book = RequestBook()
    for now_s, (event, number) in enumerate(events):
        happen(book, event, str(number), float(now_s))
        live = [request for n in range(6) if (request := book.get(str(n)))]
        decoding = [r for r in live if r.state is RequestState.DECODING]
        held = [r for r in decoding if r.is_held]
        waiting = [r for r in live if r.state is RequestState.WAITING]
        assert book.waiting.num == len(waiting)
        assert book.waiting.tokens == sum(r.num_tokens for r in waiting)
        assert book.waiting.squared_tokens == sum(r.num_tokens**2 for r in waiting)
        assert book.held == DecodeLoad(len(held), sum(r.num_tokens for r in held))
        assert book.decoding.num == len(decoding) - len(held)
        assert book.decoding.context_tokens == sum(r.num_tokens for r in decoding if not r.is_held)
        assert book.census().is_conserved


def happen(book: RequestBook, event: str, request_id: str, now_s: float) -> None:
    request = book.get(request_id)
    match event:
        case "accept" if request is None:
            book.accept(request_id, 10, now_s)
        case "start":
            book.start(request_id, 0, now_s)
        case "advance" if request and not request.is_held:
            book.advance(request_id, request.num_output_tokens + 1, now_s)
        case "hold" if request and request.state is RequestState.DECODING and not request.is_held:
            book.hold(request, 0, now_s)
        case "release" if request and request.is_held:
            book.release(request, now_s)
        case "requeue" if request and not request.is_held:
            book.requeue(request_id)
        case "end":
            book.end(request_id, FinishReason.STOP, now_s)
        case _:
            pass  # this cannot happen to it now
