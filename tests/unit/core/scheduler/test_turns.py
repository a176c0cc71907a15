"""Who starts next: priority, then fair turns among clients, then arrival."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.chunking import Static
from pipelineserve.scheduler.fairness import OUTPUT_TOKEN_WEIGHT
from scheduling import Pipeline, make_request, make_settings


def one_at_a_time() -> Pipeline:
    return Pipeline(make_settings(max_running_requests=1, num_slots=1))


def started(pipeline: Pipeline) -> list[str]:
    """Requests in the order in which they started."""
    pieces = [piece for micro_batch in pipeline.launched for piece in micro_batch.pieces]
    return list(dict.fromkeys(piece.request_id for piece in pieces))


def test_requests_of_one_client_start_in_order_of_arrival() -> None:
    pipeline = one_at_a_time()
    for name in "cab":
        pipeline.submit(make_request(name))
        pipeline.now_s += 1
    pipeline.drain()
    assert started(pipeline) == ["c", "a", "b"]


def test_a_high_priority_request_overtakes_those_that_wait() -> None:
    pipeline = one_at_a_time()
    for name in ("running", "waiting"):
        pipeline.submit(make_request(name))
    pipeline.launch()
    pipeline.submit(make_request("urgent", priority=1))
    pipeline.drain()
    assert started(pipeline) == ["running", "urgent", "waiting"]


def test_a_light_client_does_not_wait_behind_a_heavy_ones_backlog() -> None:
    pipeline = one_at_a_time()
    for index in range(20):
        pipeline.submit(make_request(f"heavy {index}", 10, client_id="heavy"))
    pipeline.fill()
    pipeline.now_s = 5.0
    pipeline.submit(make_request("light", 10, client_id="light"))
    pipeline.drain()
    assert started(pipeline).index("light") <= 2


def test_clients_with_equal_requests_take_turns() -> None:
    pipeline = one_at_a_time()
    for client_id in ("anna", "bert"):
        for index in range(4):
            pipeline.submit(make_request(f"{client_id} {index}", client_id=client_id))
    pipeline.drain()
    clients = [request_id.split()[0] for request_id in started(pipeline)]
    assert all(first != second for first, second in pairwise(clients))


def test_coming_back_after_a_pause_earns_no_credit() -> None:
    pipeline = one_at_a_time()
    pipeline.submit(make_request("early", client_id="paused"))
    pipeline.drain()
    for index in range(10):
        pipeline.submit(make_request(f"steady {index}", 20, client_id="steady"))
    for _ in range(15):
        pipeline.fill()
        pipeline.complete()
    for index in range(10):
        pipeline.submit(make_request(f"paused {index}", 20, client_id="paused"))
    num_before = len(started(pipeline))
    pipeline.drain()
    clients = [request_id.split()[0] for request_id in started(pipeline)[num_before:]]
    assert clients[:4].count("steady") == 2


def test_a_prompt_that_does_not_fit_is_not_overtaken_by_a_smaller_one() -> None:
    pipeline = Pipeline(make_settings(num_blocks=8, block_tokens=1, num_slots=1))
    pipeline.submit(make_request("running", 4, max_output_tokens=3))
    pipeline.launch()
    pipeline.submit(make_request("large", 6, max_output_tokens=1))
    pipeline.submit(make_request("small", 1, max_output_tokens=1))
    pipeline.drain()
    assert started(pipeline) == ["running", "large", "small"]


def test_a_newcomer_takes_no_block_that_a_started_prompt_still_needs() -> None:
    pipeline = Pipeline(make_settings(num_blocks=15, block_tokens=1, num_slots=1))
    pipeline.submit(make_request("decode", 1, max_output_tokens=12))
    pipeline.launch()
    pipeline.complete()
    pipeline.submit(make_request("large", 12, max_output_tokens=1))
    for chunk_tokens in (2, 1, 1):  # the large prompt starts, then decodes eat what it counted on
        pipeline.scheduler.chunk_policy = Static(chunk_tokens)
        pipeline.launch()
        pipeline.complete()
    pipeline.submit(make_request("small", 1, max_output_tokens=1))
    pipeline.scheduler.chunk_policy = Static(64)
    micro_batch = pipeline.launch()
    assert micro_batch is not None
    assert [piece.request_id for piece in micro_batch.pieces] == ["decode"]
    assert pipeline.scheduler.kv.pool.num_free == 9
    pipeline.drain()
    assert started(pipeline) == ["decode", "large", "small"]


def test_a_prompt_starts_only_if_each_running_request_keeps_a_block_to_grow_by() -> None:
    pipeline = Pipeline(make_settings(num_blocks=8, block_tokens=1, num_slots=1))
    pipeline.submit(make_request("decode", 1, max_output_tokens=3))
    pipeline.launch()
    pipeline.complete()
    pipeline.submit(make_request("fills the rest", 6, max_output_tokens=1))
    pipeline.launch()
    assert started(pipeline) == ["decode"]
    pipeline.drain()
    assert pipeline.scheduler.tally.preemptions == 0


@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 6), st.booleans()), min_size=4, max_size=30
    )
)
def test_clients_with_a_backlog_are_never_further_apart_than_two_requests(
    sizes: list[tuple[int, int, bool]],
) -> None:
    pipeline = one_at_a_time()
    for index, (num_prompt, num_output, is_anna) in enumerate(sizes):
        client_id = "anna" if is_anna else "bert"
        new = make_request(
            f"{index}", num_prompt, max_output_tokens=num_output, client_id=client_id
        )
        pipeline.submit(new)
    largest = max(
        num_prompt + OUTPUT_TOKEN_WEIGHT * num_output for num_prompt, num_output, _ in sizes
    )
    fairness = pipeline.scheduler._fairness
    while {"anna", "bert"} == {request.new.client_id for request in pipeline.scheduler._waiting}:
        pipeline.fill()
        pipeline.complete()
        assert abs(fairness.served("anna") - fairness.served("bert")) <= 2 * largest
