"""Devices and links by name."""

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_simulator.hardware.catalogue import load_profile
from pipelineserve_simulator.hardware.devices import (
    device_names,
    find_device,
    find_link,
    with_link,
)

PROFILE = load_profile("a100-40gb-pcie/qwen2.5-32b")


def test_every_device_has_a_datasheet_of_its_name_and_a_link() -> None:
    for name in device_names():
        device = find_device(name)
        assert device.datasheet.name == name
        assert device.datasheet.link_bytes_per_s == device.link.bytes_per_s


def test_names_are_found_in_any_case() -> None:
    assert find_device("H100-80GB-SXM") == find_device("h100-80gb-sxm")


def test_an_unknown_device_is_answered_with_the_nearest_names_first_of_all() -> None:
    with pytest.raises(InvalidInputError, match=r'gpu: got "h100".*nearest: h100-80gb') as caught:
        find_device("h100")
    assert "l4-24gb" in str(caught.value)


def test_a_name_like_no_other_has_no_nearest() -> None:
    with pytest.raises(InvalidInputError) as caught:
        find_device("????")
    assert "nearest" not in str(caught.value)


def test_the_own_link_of_the_measured_device_costs_what_was_measured() -> None:
    own = with_link(PROFILE, find_device("a100-40gb-pcie").link).link
    assert own.hop_bytes_per_s == pytest.approx(PROFILE.link.hop_bytes_per_s, rel=0.02)
    assert own.all_reduce_bytes_per_s == pytest.approx(
        PROFILE.link.all_reduce_bytes_per_s, rel=0.02
    )
    assert (own.hop_s, own.all_reduce_s) == (PROFILE.link.hop_s, PROFILE.link.all_reduce_s)


def test_links_differ_in_rates_and_latencies_only() -> None:
    fast, slow = (with_link(PROFILE, find_link(name)) for name in ("nvlink4", "ethernet:10"))
    assert fast.link.all_reduce_bytes_per_s > 200 * slow.link.all_reduce_bytes_per_s
    assert fast.link.hop_s < PROFILE.link.hop_s < slow.link.hop_s
    assert fast.link.hop_bytes_per_token == slow.link.hop_bytes_per_token
    assert fast.model_copy(update={"link": slow.link}) == slow


def test_ethernet_is_given_in_gigabits_per_second() -> None:
    assert find_link("ethernet:100").bytes_per_s == pytest.approx(12.5e9)


@pytest.mark.parametrize("text", ["pcie", "ethernet:", "ethernet:-1", "ethernet:nan", ""])
def test_an_unknown_link_is_answered_with_those_that_there_are(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"link: got .*pcie4.*ethernet:GBITS"):
        find_link(text)
