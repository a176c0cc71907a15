"""What is read off SGLang's objects."""

import pytest

from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.policy.views import PromptLoad
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.sglang import reading
from sglang_fakes import EXTEND, FakeBatch, FakeRequest, FakeScheduler, a_batch


def test_decodes_are_those_that_run_and_those_just_prefilled() -> None:
    scheduler = FakeScheduler()
    scheduler.running_mbs[1] = a_batch("a", "done")
    scheduler.running_mbs[1].reqs[1].finish_type = "stop"
    cut, later = FakeRequest("cut"), FakeRequest("later")
    last = FakeBatch([FakeRequest("b"), cut, later], forward_mode=EXTEND, chunked_req=cut)
    scheduler.last_mbs[1] = last
    scheduler.chunked_req = later
    assert [r.rid for r in reading.decodes_of(scheduler, 1)] == ["a", "b"]
    assert reading.decodes_of(scheduler, 0) == []


def test_who_just_decoded_is_not_counted_twice() -> None:
    scheduler = FakeScheduler()
    scheduler.running_mbs[0] = batch = a_batch("a")
    scheduler.last_mbs[0] = batch
    assert [r.rid for r in reading.decodes_of(scheduler, 0)] == ["a"]
    batch.forward_mode = EXTEND
    assert [r.rid for r in reading.decodes_of(scheduler, 0)] == ["a"]


def test_the_started_prompt_is_what_is_left_of_it() -> None:
    scheduler = FakeScheduler()
    assert reading.started_prompt(scheduler) == PromptLoad(0, 0, 0, 0)
    scheduler.chunked_req = FakeRequest("a", num_prompt=100, prefix_len=20, extend_end=60)
    assert reading.started_prompt(scheduler) == PromptLoad(1, 40, 1600, 2400)


class Sent:
    """One of what the server sends."""

    def __init__(self, **fields: object) -> None:
        self.__dict__ |= fields


def test_arriving_prompts_are_counted_alone_and_in_batches() -> None:
    received = [
        Sent(input_ids=[1, 2, 3]),
        Sent(rid="an abort"),
        Sent(batch=[Sent(input_ids=[1]), Sent(input_ids=[1, 2])]),
        Sent(input_ids=None),
    ]
    assert reading.arriving_prompts(received) == PromptLoad(3, 6, 14, 0)


@pytest.mark.parametrize(("free_tokens", "ratio"), [(1000, 1.0), (250, 0.25), (-5, 0.0)])
def test_free_kv_is_a_share_of_the_pool(free_tokens: int, ratio: float) -> None:
    scheduler = FakeScheduler()
    scheduler.free_tokens = free_tokens
    assert reading.kv_free_ratio(scheduler) == ratio


@pytest.mark.parametrize(
    "special",
    [
        {"grammar": object()},
        {"lora_id": "lora"},
        {"custom_logit_processor": "text"},
        {"beam_group": object()},
        {"multimodal_inputs": object()},
        {"session": object()},
    ],
)
def test_requests_that_share_something_with_their_batch_are_not_held(
    special: dict[str, object],
) -> None:
    assert reading.may_be_held(FakeRequest("plain"))
    assert not reading.may_be_held(FakeRequest("special", **special))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frequency_penalty", 0.5),
        ("presence_penalty", -0.5),
        ("repetition_penalty", 1.1),
        ("min_new_tokens", 3),
    ],
)
def test_requests_with_penalties_are_not_held(name: str, value: float) -> None:
    request = FakeRequest("penalised")
    setattr(request.sampling_params, name, value)
    assert not reading.may_be_held(request)


def test_features_of_decodes() -> None:
    batch = a_batch("a", "b")
    batch.reqs[1].output_ids = [1, 2]
    assert reading.features_of(batch) == (2, StepFeatures(22, 0, 0))
    assert reading.num_tokens_of(batch) == 2
    assert reading.prefilled_requests(batch) == ()


def test_features_of_prompts_with_decodes_beside_them() -> None:
    prompt, decode = FakeRequest("p"), FakeRequest("d")
    batch = FakeBatch(
        [prompt, decode],
        forward_mode=EXTEND,
        extend_lens=[8, 1],
        prefix_lens=[16, 30],
        decoding_reqs=[decode],
    )
    assert reading.features_of(batch) == (1, StepFeatures(31, 64, 128))
    assert reading.num_tokens_of(batch) == 9
    assert reading.prefilled_requests(batch) == [prompt]


@pytest.mark.parametrize(
    ("finish_type", "finish"),
    [
        (None, None),
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("abort", FinishReason.CANCELLED),
    ],
)
def test_how_a_request_ended(finish_type: str | None, finish: FinishReason | None) -> None:
    assert reading.finish_of(FakeRequest("a", finish_type=finish_type)) is finish
