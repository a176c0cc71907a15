"""What a controller would have measured is what the cost model says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.step_time import StepFeatures
from pipelineserve_simulator.hardware.catalogue import load_profile
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.layouts import even_layout
from pipelineserve_simulator.hardware.measured import measured_model
from pipelineserve_simulator.pipeline.loads import StepLoad

PROFILE = load_profile("a100-40gb-pcie/qwen2.5-32b")
LAYOUT = even_layout(PROFILE.model, 4)
COSTS = ProfileCosts(PROFILE, LAYOUT)
MODEL = measured_model(PROFILE, LAYOUT, 2048, has_host=False)


@given(st.integers(1, 2048), st.integers(0, 4000))
def test_prompts_take_what_the_model_predicts(num_tokens: int, past: int) -> None:
    features = StepFeatures(0.0, num_tokens**2, past * num_tokens)
    load = StepLoad(num_tokens, 1, 0, 1, 0, num_tokens**2, past * num_tokens)
    taken_s = max(COSTS.stage_times_s(load))
    assert MODEL.predict_s(num_tokens, features) == pytest.approx(taken_s, rel=0.002)


@given(st.integers(1, 512), st.integers(1, 2000))
def test_decodes_take_nearly_what_the_model_predicts(num: int, context: int) -> None:
    load = StepLoad(num, num, num, num, num * context, 0, 0)
    taken_s = max(COSTS.stage_times_s(load))
    predicted_s = MODEL.predict_s(num, StepFeatures(decode_context_tokens=num * context))
    # Each sampled token costs the head a little, which a table by tokens does not see.
    assert taken_s - predicted_s == pytest.approx(COSTS.head_s(num) - COSTS.head_s(1), abs=3e-5)


def test_the_leaders_work_is_in_it_if_asked_for() -> None:
    with_host = measured_model(PROFILE, LAYOUT, 2048, has_host=True)
    added_s = with_host.table.at(700) - MODEL.table.at(700)
    assert added_s == pytest.approx(COSTS.host_s(1))


def test_the_table_ends_where_it_is_asked_to() -> None:
    assert measured_model(PROFILE, LAYOUT, 300, has_host=False).table.tokens[-1] == 300
    assert measured_model(PROFILE, LAYOUT, 1, has_host=False).table.tokens == (1,)
