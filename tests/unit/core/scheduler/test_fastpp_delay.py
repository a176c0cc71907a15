"""FastPP's delay scheduling on the scheduler: slots of their own, one set of held decodes."""

from dataclasses import dataclass, field, replace

import pytest

from pipelineserve.policy.chunking import ChunkDecision, Static
from pipelineserve.policy.fastpp.delay import FastppDelay, FastppDelayView
from pipelineserve.policy.fastpp.latency_model import FastppStep
from pipelineserve.policy.fastpp.signals import Signals
from pipelineserve.policy.fastpp.views import FastppView, LatencyTotals
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.fastpp import FastppScheduler
from scheduling import Pipeline, make_request, make_settings
from scheduling_invariants import check_drained, check_running


@dataclass(frozen=True)
class SignalMemory:
    """What delay scheduling reads of a chunk law's memory."""

    chunk_tokens: int
    signals: Signals


@dataclass
class PlainLaw:
    """A chunk of 64; its TPOT signal can be set, and reaches others with the next decision."""

    ttft_target_s: float = 8.0
    period: int = 1
    tpot_s: float = 0.0
    views: list[FastppView] = field(default_factory=list)

    def start(self) -> SignalMemory:
        """See `FastppLaw`."""
        return SignalMemory(64, Signals(0.0, 0.0, LatencyTotals()))

    def is_due(self, step_index: int, num_slots: int) -> bool:
        """Every `period`-th."""
        del num_slots
        return step_index % self.period == 0

    def decide(self, memory: SignalMemory, view: FastppView) -> tuple[ChunkDecision, SignalMemory]:
        """Note."""
        self.views.append(view)
        signals = replace(memory.signals, tpot_s=self.tpot_s)
        return ChunkDecision(64, Reason.TARGETS_MET), replace(memory, signals=signals)

    def observe(self, memory: SignalMemory, step: FastppStep) -> SignalMemory:
        """Nothing."""
        del step
        return memory


# Two requests per slot are a full unit; the band above it is 0.4 of it.
DELAY = FastppDelay(tpot_target_s=1.0, unit_requests=2, margin_ratio=0.4, headroom_tokens=None)


class NotingDelay(FastppDelay):
    """Notes what it is shown."""

    seen: list[FastppDelayView] = []  # noqa: RUF012 # emptied by each test that reads it

    def decide(self, view: FastppDelayView):  # type: ignore[no-untyped-def] # as the base
        """Note."""
        self.seen.append(view)
        return super().decide(view)


def a_pipeline(
    law: PlainLaw, delay: FastppDelay = DELAY, num_slots: int = 2, num_blocks: int = 64
) -> Pipeline:
    settings = make_settings(num_slots=num_slots, num_blocks=num_blocks)
    return Pipeline(scheduler=FastppScheduler(settings, law, delay=delay))


def launched(pipeline: Pipeline, slot_index: int) -> list[str]:
    micro_batch = pipeline.launch(slot_index)
    check_running(pipeline)
    return [] if micro_batch is None else [piece.request_id for piece in micro_batch.pieces]


def held(pipeline: Pipeline) -> list[str]:
    return [request.request_id for request in pipeline.scheduler._decodes.each_held()]


def with_decodes(law: PlainLaw, *slots: str, delay: FastppDelay = DELAY) -> Pipeline:
    """Slots with these requests decoding, one letter each, arrived in this order."""
    pipeline = a_pipeline(law, delay, num_slots=len(slots))
    for slot_index, request_ids in enumerate(slots):
        for request_id in request_ids:
            pipeline.now_s += 1.0
            pipeline.submit(make_request(request_id, max_output_tokens=30))
        launched(pipeline, slot_index)
    for _ in slots:
        pipeline.complete()
    return pipeline


def test_in_the_band_a_slot_is_brought_down_to_the_unit() -> None:
    pipeline = with_decodes(PlainLaw(), "abc", "de")
    assert launched(pipeline, 0) == ["a", "b"]
    assert held(pipeline) == ["c"]
    assert launched(pipeline, 1) == ["d", "e"]


def test_from_nine_tenths_of_the_tpot_target_the_oldest_wait() -> None:
    law = PlainLaw()
    law.tpot_s = 0.95
    pipeline = with_decodes(law, "abc", "de")
    assert launched(pipeline, 0) == ["b", "c"]
    assert held(pipeline) == ["a"]


def test_a_held_one_goes_on_in_the_slot_that_has_room_first() -> None:
    pipeline = with_decodes(PlainLaw(), "abc", "de")
    launched(pipeline, 0)
    pipeline.cancel("d")
    assert launched(pipeline, 1) == ["c", "e"]
    assert held(pipeline) == []
    pipeline.complete()
    pipeline.complete()
    assert launched(pipeline, 1) == ["c", "e"]
    assert launched(pipeline, 0) == ["a", "b"]


def test_without_delay_nothing_is_held() -> None:
    settings = make_settings(num_slots=2)
    pipeline = Pipeline(scheduler=FastppScheduler(settings, PlainLaw()))
    for request_id in "abcde":
        pipeline.submit(make_request(request_id, max_output_tokens=30))
    launched(pipeline, 0)
    pipeline.complete()
    assert launched(pipeline, 0) == list("abcde")


def test_what_it_sees_is_as_of_the_chunk_laws_last_decision() -> None:
    law = PlainLaw(period=4)
    NotingDelay.seen.clear()
    delay = NotingDelay(tpot_target_s=1.0)
    pipeline = a_pipeline(law, delay, num_slots=1)
    law.tpot_s = 0.3
    pipeline.submit(make_request("a", 8, max_output_tokens=30))
    for waiting in range(5):
        pipeline.submit(make_request(f"{waiting}", 60, max_output_tokens=30))
        pipeline.launch()
        law.tpot_s = 0.7
        pipeline.complete()
    signals = [view.tpot_signal_s for view in delay.seen]
    # Decided for the first and the fifth micro-batch; the next one is the first to see it.
    assert signals == [0.0, 0.3, 0.3, 0.3, 0.3]
    pipeline.launch()
    assert delay.seen[-1].tpot_signal_s == 0.7
    waiting_tokens = [view.waiting_tokens for view in delay.seen]
    assert waiting_tokens[:5] == [0, *[68] * 4]
    assert waiting_tokens[5] > 68
    kv_free = [view.kv_free_ratio for view in delay.seen]
    assert kv_free[:5] == [1.0] * 5
    assert kv_free[5] < 0.5


def test_slots_and_numbers_are_shown_as_they_are() -> None:
    NotingDelay.seen.clear()
    delay = NotingDelay(tpot_target_s=1.0, unit_requests=2, headroom_tokens=None)
    pipeline = with_decodes(PlainLaw(), "abc", "de", delay=delay)
    delay.seen.clear()
    launched(pipeline, 0)
    launched(pipeline, 1)
    assert [(view.slot_index, view.num_ready, view.num_held) for view in delay.seen] == [
        (0, 3, 0),
        (1, 2, 1),
    ]
    assert [slot.num_requests for slot in delay.seen[0].slots] == [3, 2]
    assert [slot.num_requests for slot in delay.seen[1].slots] == [2, 2]


def test_a_controllers_holding_is_not_for_it() -> None:
    pipeline = with_decodes(PlainLaw(), "abc", "de")
    launched(pipeline, 0)
    pipeline.scheduler.adopt(SchedulingPolicy(Static(64)))
    launched(pipeline, 1)
    assert held(pipeline) == ["c"]


@pytest.mark.parametrize("delay", [DELAY, DELAY.as_in_the_paper()])
def test_when_only_held_ones_are_left_they_go_on(delay: FastppDelay) -> None:
    pipeline = with_decodes(PlainLaw(), "abc", "de", delay=delay)
    launched(pipeline, 0)
    launched(pipeline, 1)
    assert held(pipeline)
    for request_id in "abde":
        pipeline.cancel(request_id)
    pipeline.drain()
    check_drained(pipeline)


def test_the_papers_variant_keeps_a_request_alone_in_its_slot() -> None:
    pipeline = a_pipeline(PlainLaw(), DELAY.as_in_the_paper(), num_slots=4)
    for slot_index, request_id in enumerate("ab"):
        pipeline.submit(make_request(request_id, max_output_tokens=30))
        launched(pipeline, slot_index)
        pipeline.complete()
    assert launched(pipeline, 1) == ["b"]
    assert launched(pipeline, 0) == ["a"]
    assert pipeline.scheduler.num_held == 0


def test_held_ones_are_lost_with_the_stages_like_all_others() -> None:
    pipeline = with_decodes(PlainLaw(), "abc", "de")
    launched(pipeline, 0)
    pipeline.recall_all()
    check_running(pipeline)
    assert pipeline.scheduler.num_held == 0
    pipeline.drain()
    check_drained(pipeline)
