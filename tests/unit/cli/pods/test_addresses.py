"""Pods have addresses of their own, and texts name them by these."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_cli.pods.addresses import Network, PodNames, names_of
from pipelineserve_cli.pods.specs import pods_of
from small_pods import a_set

NAMES = PodNames({"a-0": "127.64.0.1", "a-w-1": "127.64.0.2"}, frozenset({"a-pods"}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a-0", "127.64.0.1"),
        ("--stage-addresses=a-0,a-0,a-w-1", "--stage-addresses=127.64.0.1,127.64.0.1,127.64.0.2"),
        ("--leader=a-0.a-pods:7600", "--leader=127.64.0.1:7600"),
        ("http://a-0.a-pods.here.svc.cluster.local:8000/x", "http://127.64.0.1:8000/x"),
        ("a-0.gguf, or a-0.", "a-0.gguf, or 127.64.0.1."),
        ("a-01 xa-0 a-0-1 b.a-0 a-w", "a-01 xa-0 a-0-1 b.a-0 a-w"),
        ("--served-name=a", "--served-name=a"),
    ],
)
def test_names_of_pods_become_addresses_and_nothing_else_does(text: str, expected: str) -> None:
    assert NAMES.resolved(text) == expected


def test_any_address_and_loopback_are_the_pods_own() -> None:
    text = "--host=0.0.0.0 http://127.0.0.1:8000/metrics 10.0.0.0 127.0.0.10"
    expected = "--host=127.64.0.2 http://127.64.0.2:8000/metrics 10.0.0.0 127.0.0.10"
    assert NAMES.within("a-w-1", text) == expected


def test_networks_that_are_held_differ_whatever_chance_says() -> None:
    held = [Network(random.Random(7)) for _ in range(5)]
    pods = pods_of([a_set(num_pods=3)])
    addresses = [address for one in held for address in one.addresses(pods).values()]
    assert len(set(addresses)) == 15
    assert all(address.startswith("127.") for address in addresses)
    for one in held:
        one.close()


def test_a_network_that_was_given_back_is_given_again() -> None:
    found = []
    for _ in range(2):
        network = Network(random.Random(3))
        found.append(network.addresses(pods_of([a_set()])))
        network.close()
    assert found[0] == found[1]


def test_more_pods_than_addresses_are_refused() -> None:
    network = Network(random.Random(1))
    with pytest.raises(EngineUnavailableError, match="expected at most 250 pods, got 251"):
        network.addresses(pods_of([a_set(num_pods=251)]))
    network.close()


@given(st.text(alphabet="ab-0.1wx:/, ", max_size=40))
def test_texts_without_a_pods_whole_name_stay(text: str) -> None:
    names = names_of(pods_of([a_set(name="zz")]), {"zz-0": "127.64.0.1"})
    assert names.resolved(text) == text
