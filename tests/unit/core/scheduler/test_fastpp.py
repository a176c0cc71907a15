"""FastPP's laws on our scheduler: what they see is what happened, and every chunk is theirs."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.fastpp.greedy import FastppGreedy
from pipelineserve.policy.fastpp.latency_model import FastppBatch, FastppStep, LatencyModelSettings
from pipelineserve.policy.fastpp.predictive import FastppPredictive
from pipelineserve.policy.fastpp.signals import Signals
from pipelineserve.policy.fastpp.views import ChunkedPrompt, FastppView, LatencyTotals, SlotView
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.scheduler.fastpp import FastppLaw, FastppScheduler
from scheduling import Pipeline, make_request, make_settings


@dataclass(frozen=True)
class NotedMemory:
    """Counts steps."""

    chunk_tokens: int
    signals: Signals
    num_steps: int = 0


@dataclass
class NotingLaw:
    """Decides for every micro-batch, takes the same chunk each time, and notes what it is shown."""

    chunk_tokens: int = 8
    ttft_target_s: float = 8.0
    period: int = 1
    views: list[FastppView] = field(default_factory=list)
    steps: list[FastppStep] = field(default_factory=list)

    def start(self) -> NotedMemory:
        """See `FastppLaw`."""
        return NotedMemory(self.chunk_tokens, Signals(0.0, 0.0, LatencyTotals()))

    def is_due(self, step_index: int, num_slots: int) -> bool:
        """Every `period`-th."""
        del num_slots
        return step_index % self.period == 0

    def decide(self, memory: NotedMemory, view: FastppView) -> tuple[ChunkDecision, NotedMemory]:
        """Note."""
        self.views.append(view)
        return ChunkDecision(self.chunk_tokens, Reason.TARGETS_MET), memory

    def observe(self, memory: NotedMemory, step: FastppStep) -> NotedMemory:
        """Note."""
        self.steps.append(step)
        return replace(memory, num_steps=memory.num_steps + 1)


def a_pipeline(law: NotingLaw, num_slots: int = 2) -> Pipeline:
    return Pipeline(scheduler=FastppScheduler(make_settings(num_slots=num_slots), law))


def test_a_prompt_that_is_cut_belongs_to_the_slot_that_carried_its_latest_piece() -> None:
    law = NotingLaw(chunk_tokens=8)
    pipeline = a_pipeline(law)
    pipeline.submit(make_request("a", 20))
    pipeline.launch(0)
    pipeline.launch(1)
    pipeline.complete()
    pipeline.launch(0)
    pipeline.complete()
    pipeline.launch(1)
    cuts = [[slot.chunked for slot in view.slots] for view in law.views]
    assert cuts == [
        [None, None],
        [ChunkedPrompt(past_tokens=8, remaining_tokens=12), None],
        [None, ChunkedPrompt(past_tokens=16, remaining_tokens=4)],
        [None, None],
    ]


def test_slots_show_the_requests_and_contexts_of_their_last_micro_batch() -> None:
    law = NotingLaw(chunk_tokens=8)
    pipeline = a_pipeline(law, num_slots=1)
    pipeline.submit(make_request("a", 5, max_output_tokens=4))
    pipeline.launch()
    pipeline.complete()
    pipeline.submit(make_request("b", 3))
    pipeline.launch()  # the decode of a, whose context is 6, and the prompt of b
    pipeline.complete()
    pipeline.launch()
    assert [view.slots[0] for view in law.views] == [
        SlotView(0, 0, 0),
        SlotView(num_requests=1, num_decodes=0, decode_context_tokens=0),
        SlotView(num_requests=2, num_decodes=1, decode_context_tokens=6),
    ]


def test_the_queue_is_shown_by_arrival_up_to_what_all_slots_could_take() -> None:
    law = NotingLaw(chunk_tokens=8)
    pipeline = a_pipeline(law)
    for index, request_id in enumerate("abcdef"):
        pipeline.now_s = float(index)
        pipeline.submit(make_request(request_id, 50 + index))
    pipeline.now_s = 7.0
    pipeline.launch()
    (view,) = law.views
    assert view.waiting_prompts == (50, 51, 52)  # of 2 slots with 64 tokens each
    assert view.arrived_tokens == 315
    # Of a target of 8 s a quarter: a to f arrived 7 to 2 s ago.
    assert (view.num_stale, view.stale_tokens, view.stale_wait_s) == (6, 315, 27.0)


def test_latencies_are_summed_up_per_first_token_and_per_micro_batch_of_decodes() -> None:
    law = NotingLaw(chunk_tokens=64)
    pipeline = a_pipeline(law, num_slots=1)
    for request_id in "ab":
        pipeline.submit(make_request(request_id, 4, max_output_tokens=4))
    for now_s in (1.0, 3.0, 6.0, 10.0):
        pipeline.launch()
        pipeline.now_s = now_s
        pipeline.complete()
    totals = [view.totals for view in law.views]
    assert totals == [
        LatencyTotals(),
        LatencyTotals(num_ttft=2, ttft_sum_s=2.0),
        LatencyTotals(num_ttft=2, ttft_sum_s=2.0),  # the first decodes have none before them
        LatencyTotals(num_ttft=2, ttft_sum_s=2.0, num_tpot=1, tpot_sum_s=3.0),
    ]
    assert [view.ttft_p90_s for view in law.views] == [None, 1.0, 1.0, 1.0]


def test_a_step_lasts_from_a_launch_to_the_next_result_and_names_all_in_flight() -> None:
    law = NotingLaw(chunk_tokens=8)
    pipeline = a_pipeline(law)
    pipeline.submit(make_request("a", 20))
    pipeline.launch(0)
    pipeline.now_s = 1.0
    pipeline.launch(1)
    pipeline.now_s = 3.0
    pipeline.complete()
    first = FastppBatch(8, StepFeatures(0, 64, 0), has_prefill=True)
    second = FastppBatch(8, StepFeatures(0, 64, 64), has_prefill=True)
    assert law.steps == [FastppStep(2.0, second, (first, second))]
    pipeline.now_s = 4.0
    pipeline.complete()  # nothing was launched since
    assert len(law.steps) == 1


def test_between_decisions_the_law_is_not_asked_and_its_chunk_stays() -> None:
    law = NotingLaw(chunk_tokens=8, period=3)
    pipeline = a_pipeline(law, num_slots=1)
    pipeline.submit(make_request("a", 60))
    for _ in range(5):
        pipeline.launch()
        pipeline.complete()
    assert [view.step_index for view in law.views] == [0, 3]
    reasons = [micro_batch.chunk.reason for micro_batch in pipeline.launched]
    assert reasons == [
        Reason.TARGETS_MET,
        Reason.NOT_YET_DUE,
        Reason.NOT_YET_DUE,
        Reason.TARGETS_MET,
        Reason.NOT_YET_DUE,
    ]
    assert [micro_batch.num_tokens for micro_batch in pipeline.launched] == [8] * 5


def test_what_was_lost_with_the_stages_is_no_step_and_in_no_slot() -> None:
    law = NotingLaw(chunk_tokens=8)
    pipeline = a_pipeline(law)
    pipeline.submit(make_request("a", 20))
    pipeline.fill()
    pipeline.recall_all()
    pipeline.launch(0)
    pipeline.now_s = 5.0
    pipeline.complete()
    assert law.views[-1].slots == (SlotView(0, 0, 0),) * 2
    assert [step.step_time_s for step in law.steps] == [5.0]


_SIZES = (4, 8, 16, 32, 64)
LAWS: tuple[FastppLaw[Any], ...] = (
    FastppGreedy(4.0, 2.0, min_tokens=4, max_tokens=64, step_tokens=4, unit_tokens=4),
    FastppGreedy(4.0, 2.0, min_tokens=4, max_tokens=64, unit_tokens=4).as_in_the_paper(),
    FastppPredictive(
        4.0, 2.0, _SIZES, tuple(0.1 + 0.02 * size for size in _SIZES), 16,
        fit=LatencyModelSettings(unit_tokens=4), unit_tokens=4,
    ),
    FastppPredictive(
        4.0, 2.0, _SIZES, tuple(0.1 + 0.02 * size for size in _SIZES), 16, unit_tokens=4
    ).as_in_the_paper(),
)  # fmt: skip


@pytest.mark.parametrize("law", LAWS)
@given(seed=st.integers(0, 2**32 - 1), num_slots=st.integers(1, 4), num_blocks=st.integers(20, 64))
def test_whatever_the_law_chooses_every_request_ends_with_its_own_text(
    law: FastppLaw[Any], seed: int, num_slots: int, num_blocks: int
) -> None:
    random = Random(seed)
    settings = make_settings(num_slots=num_slots, num_blocks=num_blocks)
    pipeline = Pipeline(scheduler=FastppScheduler(settings, law))
    for index in range(30):
        pipeline.now_s += random.random()
        pipeline.submit(make_request(f"{index}", random.randint(1, 40), max_output_tokens=9))
        if pipeline.free_slots:
            pipeline.launch()
        if pipeline.flights and random.random() < 0.7:
            pipeline.complete()
    pipeline.drain()
    census = pipeline.scheduler.census()
    assert (census.finished, census.is_conserved) == (len(pipeline.accepted), True)
