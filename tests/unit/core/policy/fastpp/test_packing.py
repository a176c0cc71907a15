"""What the next micro-batches of all slots are taken to carry, on average."""

from pipelineserve.policy.fastpp.packing import mean_features
from pipelineserve.policy.fastpp.views import ChunkedPrompt
from pipelineserve.policy.step_time import StepFeatures
from policy_views import make_fastpp_view, make_slot


def test_contexts_are_averaged_over_the_slots() -> None:
    slots = [make_slot(2, context_tokens=num) for num in (100, 200, 300, 1000)]
    assert mean_features(make_fastpp_view(slots=slots), 128) == StepFeatures(400.0, 0.0, 0.0)


def test_a_long_prompt_goes_on_from_slot_to_slot_with_a_growing_past() -> None:
    features = mean_features(make_fastpp_view(waiting_prompts=[1000]), 100)
    assert features.squared_prefill_tokens == 100 * 100
    assert features.past_prefill_product == (0 + 100 + 200 + 300) * 100 / 4


def test_decodes_take_room_in_their_slot() -> None:
    slots = [make_slot(60), *[make_slot(100)] * 3]
    view = make_fastpp_view(slots=slots, waiting_prompts=[1000])
    assert mean_features(view, 100).squared_prefill_tokens == 40 * 40 / 4


def test_prompts_are_packed_in_the_queues_order_until_the_chunk_is_full() -> None:
    features = mean_features(make_fastpp_view(waiting_prompts=[30, 50, 40]), 100)
    assert features.squared_prefill_tokens == (30**2 + 50**2 + 20**2 + 20**2) / 4
    assert features.past_prefill_product == 20 * 20 / 4


def test_packing_starts_at_the_slot_to_be_filled() -> None:
    slots = [make_slot(100), make_slot(), make_slot(100), make_slot(100)]
    view = make_fastpp_view(slots=slots, slot_index=2, waiting_prompts=[80])
    assert mean_features(view, 100).squared_prefill_tokens == 80 * 80 / 4


def test_the_prompt_being_cut_comes_before_the_queue_in_its_slot_and_the_next() -> None:
    cut = ChunkedPrompt(past_tokens=500, remaining_tokens=30)
    slots = [make_slot(chunked=cut), make_slot(), make_slot(100), make_slot(100)]
    view = make_fastpp_view(slots=slots, waiting_prompts=[10])
    features = mean_features(view, 100)
    assert features.past_prefill_product == 2 * 30 * 500 / 4
    assert features.squared_prefill_tokens == (30**2 + 10**2 + 30**2) / 4


def test_a_cut_prompt_that_fills_the_chunk_leaves_the_queue_to_the_next_slots() -> None:
    cut = ChunkedPrompt(past_tokens=0, remaining_tokens=500)
    slots = [make_slot(), make_slot(100), make_slot(100), make_slot(chunked=cut)]
    view = make_fastpp_view(slots=slots, slot_index=3, waiting_prompts=[10])
    # Slot 3 and slot 0 after it both go on with the prompt; slots 1 and 2 are full of decodes.
    assert mean_features(view, 100).squared_prefill_tokens == 2 * 100**2 / 4


def test_a_single_slot_does_not_take_its_own_prompt_for_a_neighbours() -> None:
    cut = ChunkedPrompt(past_tokens=0, remaining_tokens=50)
    view = make_fastpp_view(slots=[make_slot(chunked=cut)])
    assert mean_features(view, 100).squared_prefill_tokens == 50 * 50


def test_the_view_is_not_used_up() -> None:
    view = make_fastpp_view(waiting_prompts=[1000])
    assert mean_features(view, 100) == mean_features(view, 100)
