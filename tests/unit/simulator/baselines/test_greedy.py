"""Our greedy law inside a scheduler: what it measures, and when it is asked."""

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.greedy import Greedy, GreedyMemory, LatencyView
from pipelineserve.policy.ordering import Arrival
from pipelineserve_simulator.baselines.greedy import GreedyScheduler
from scheduling import Pipeline, make_request, make_settings

VIEWS: list[LatencyView] = []


class NotingGreedy(Greedy):
    """Notes what it is shown."""

    def decide(self, memory: GreedyMemory, view: LatencyView) -> tuple[ChunkDecision, GreedyMemory]:
        """Note."""
        VIEWS.append(view)
        return super().decide(memory, view)


def a_pipeline(num_slots: int = 1) -> Pipeline:
    VIEWS.clear()
    law = NotingGreedy(16, 64, 16, ttft_target_s=2.0, tpot_target_s=1.0)
    settings = make_settings(num_slots=num_slots)
    return Pipeline(scheduler=GreedyScheduler(settings, law, Arrival(), None))


def test_it_is_asked_once_a_second_and_the_chunk_stays_in_between() -> None:
    pipeline = a_pipeline()
    pipeline.submit(make_request("a", 100, max_output_tokens=5))
    chunks = []
    for _ in range(5):
        micro_batch = pipeline.launch()
        assert micro_batch is not None
        chunks.append(micro_batch.chunk.chunk_tokens)
        pipeline.now_s += 0.5
        pipeline.complete()
    assert len(VIEWS) == 3
    # Without a measurement it stays; then the request has waited for half its target, and more.
    assert chunks == [16, 16, 32, 32, 48]


def test_it_sees_first_tokens_and_the_tpot_of_ended_and_running_requests() -> None:
    pipeline = a_pipeline()
    pipeline.submit(make_request("a", 4, max_output_tokens=3))
    pipeline.submit(make_request("b", 4, max_output_tokens=30))
    for _ in range(4):
        pipeline.launch()
        pipeline.now_s += 1.0
        pipeline.complete()
    pipeline.launch()
    # a had its tokens after 1, 2 and 3 s; b has four since 3 s.
    assert VIEWS[0] == LatencyView(None, None, 0.0, 0, 1.0, 64)
    assert (VIEWS[-1].ttft_s, VIEWS[-1].tpot_s) == (1.0, 1.0)
    pipeline.now_s += 3.0
    pipeline.complete()
    pipeline.launch()
    assert VIEWS[-1].tpot_s == 6.0 / 5


def test_what_was_measured_long_ago_does_not_count() -> None:
    pipeline = a_pipeline()
    pipeline.submit(make_request("a", 4, max_output_tokens=1))
    pipeline.launch()
    pipeline.complete()
    pipeline.now_s = 11.0
    pipeline.submit(make_request("b", 4, max_output_tokens=1))
    pipeline.launch()
    assert VIEWS[-1].ttft_s is None


def test_the_longest_wait_and_the_fullest_slot_are_shown() -> None:
    pipeline = a_pipeline(num_slots=2)
    for request_id in "abc":
        pipeline.submit(make_request(request_id, 4, max_output_tokens=30))
    pipeline.launch(0)
    pipeline.complete()
    pipeline.now_s = 2.0
    pipeline.submit(make_request("d", 4))
    pipeline.now_s = 3.0
    pipeline.launch(0)
    pipeline.now_s = 5.0
    pipeline.launch(1)
    assert [view.most_decodes for view in VIEWS] == [0, 2, 2]
    assert [view.oldest_wait_s for view in VIEWS] == [0.0, 1.0, 3.0]
