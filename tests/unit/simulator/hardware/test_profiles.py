"""Profiles as files, and by formula from a datasheet."""

import json

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve.partition import LayerPartition
from pipelineserve_simulator.hardware.catalogue import (
    load_profile,
    profile_from_text,
    profile_names,
)
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.datasheets import Datasheet, profile_from_datasheet
from pipelineserve_simulator.hardware.layouts import Layout, even_layout, kv_tokens
from pipelineserve_simulator.pipeline.loads import StepLoad

NAME = "a100-40gb-pcie/qwen2.5-32b"
A100_PCIE = Datasheet("A100", 312e12 * 0.78, 1.555e12, int(39.39 * 2**30), 32e9)


def profile_text() -> str:
    return json.dumps(load_profile(NAME).model_dump())


def test_every_shipped_profile_can_be_read_and_is_named_like_its_file() -> None:
    assert NAME in profile_names()
    assert [load_profile(name).name for name in profile_names()] == list(profile_names())


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInputError, match=rf"expected one of .*{NAME}.*, got h100"):
        load_profile("h100")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"sigma_ratio": 0.03', '"sigma_ratio": 3.0', "noise.sigma_ratio: expected at most 1"),
        ('"tile_tokens": 128', '"tile_tokens": "128"', "linear.tile_tokens: expected an integer"),
        ('"tile_tokens": 128', '"tiles": 128', "linear.tiles: unknown field"),
        ('"tokens": 256', '"tokens": 100', "expected ascending tokens"),
        ('"flops_per_s": 195', '"flops_per_s": -195', "linear.flops_per_s"),
    ],
)
def test_a_wrong_field_is_named(old: str, new: str, message: str) -> None:
    text = profile_text()
    assert old in text
    with pytest.raises(InvalidInputError, match=message):
        profile_from_text(text.replace(old, new), "mine.yaml")


@pytest.mark.parametrize("text", ["", "a: [", "a: 1\n---\nb: 2\n"])
def test_a_text_that_is_not_one_document_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"the hardware profile mine\.yaml"):
        profile_from_text(text, "mine.yaml")


def test_a_profile_survives_the_way_through_text() -> None:
    assert profile_from_text(profile_text(), "mine.yaml") == load_profile(NAME)


def test_the_formula_comes_near_the_measured_profile_of_the_same_device() -> None:
    measured = load_profile(NAME)
    derived = profile_from_datasheet(A100_PCIE, measured.model, measured)
    layout = even_layout(measured.model, 4)
    for tokens in (640, 1024, 2048):
        load = StepLoad(tokens, 1, 0, 1, 0, tokens * tokens, 0)
        of_formula, of_profile = (
            ProfileCosts(profile, layout).stage_times_s(load)[1] for profile in (derived, measured)
        )
        assert of_formula == pytest.approx(of_profile, rel=0.05)
    assert kv_tokens(derived, layout) == pytest.approx(kv_tokens(measured, layout), rel=0.01)


def test_a_device_with_more_of_everything_is_faster_by_the_formula() -> None:
    measured = load_profile(NAME)
    layout = even_layout(measured.model, 4)
    double = Datasheet("double", 2 * 312e12 * 0.78, 2 * 1.555e12, 80 * 2**30, 64e9)
    times_s = [
        ProfileCosts(profile_from_datasheet(sheet, measured.model, measured), layout)
        .stage_times_s(StepLoad(1024, 1, 0, 1, 0, 1024 * 1024, 0))[1]
        for sheet in (A100_PCIE, double)
    ]  # fmt: skip
    assert times_s[1] == pytest.approx(times_s[0] / 2, rel=0.05)


def test_weights_that_leave_no_room_are_refused() -> None:
    profile = load_profile(NAME)
    with pytest.raises(InvalidInputError, match=r"layersPerStage\[0\]: its weights leave no room"):
        kv_tokens(profile, even_layout(profile.model, 1))


def test_a_stage_needs_a_device() -> None:
    with pytest.raises(InvalidInputError, match="tensorParallel: expected at least 1, got 0"):
        Layout(LayerPartition((1,)), 0)
    assert Layout(LayerPartition((1, 1)), 3).num_devices == 6


def test_layers_that_do_not_divide_go_to_the_first_stages() -> None:
    model = load_profile(NAME).model
    assert even_layout(model, 5).partition.layers_per_stage == (13, 13, 13, 13, 12)
