"""Two thousand random specs: a real API server and our parser come to the same verdict."""

import copy
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tools.crd import NAME, crd

from engine_server import wait_until
from kube_cluster import KubeApi, control_plane, starter
from pipelineserve.api import resource_from_document
from pipelineserve.errors import InvalidInputError
from random_specs import LIVE, ROLLING
from resource_documents import BROKEN, KEPT, changed, in_spec

NAMESPACE = f"random-{secrets.token_hex(4)}"
RESOURCES = f"/apis/pipelineserve.dev/v1alpha1/namespaces/{NAMESPACE}/pipelineserves"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-(2**31) - 1, -1, 0, 1, 2, 99, 100, 2**31 - 1, 2**31, 2**63]),
    st.sampled_from([0.5, 1.5, -2.25]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=70),
    st.sampled_from(["", "1", "Auto", "a" * 400, "-1Gi", "2026-12-01", "hf://", "$(HOME)", "é"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.sampled_from(["name", "key", "a/b", "cpu", "x y"]), st.text(max_size=3)),
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """An API server that has the definition."""
    if starter() is None:
        pytest.skip("needs a Kubernetes: KUBECONFIG, or PIPELINESERVE_TEST_CLUSTER to start one")
    with control_plane(tmp_path_factory.mktemp("kube")) as cluster:
        cluster.apply(DEFINITION, crd())
        wait_until(
            lambda: {
                condition["type"]: condition["status"]
                for condition in cluster.get(DEFINITION)["status"].get("conditions") or []
            },
            lambda conditions: conditions.get("Established") == "True",
        )
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        cluster.apply(f"/api/v1/namespaces/{NAMESPACE}", space)
        yield cluster
        cluster.delete(f"/api/v1/namespaces/{NAMESPACE}")


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Resources of which most have one or two things that may be wrong."""
    document: dict[str, Any] = {
        "apiVersion": "pipelineserve.dev/v1alpha1",
        "kind": "PipelineServe",
        "metadata": {"name": "small"},
        "spec": copy.deepcopy({**draw(ROLLING), **draw(LIVE)}),
    }
    for _ in range(draw(st.integers(0, 2))):
        _spoil(draw, document["spec"])
    return document


def _spoil(draw: st.DrawFn, spec: dict[str, Any]) -> None:
    place: Any = spec
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = draw(st.sampled_from(keys))
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner and draw(st.integers(0, 5))):
            break
        place = inner
    match draw(st.sampled_from(["replace", "replace", "remove", "unknown"])):
        case "replace":
            place[key] = draw(ODD)
        case "remove":
            del place[key]
            assume(spec)
        case _ if isinstance(place, dict):
            place[draw(st.sampled_from(["zzz", "Name", f"{key}s"]))] = draw(ODD)
        case _:
            place.append(copy.deepcopy(place[key]))


def refusal(document: dict[str, Any]) -> str:
    """What our parser has against it; empty if nothing."""
    try:
        resource_from_document(document, "random")
    except InvalidInputError as error:
        return str(error)
    return ""


def assert_judged_alike(api: KubeApi, document: dict[str, Any]) -> None:
    ours, theirs = refusal(document), api.try_create(RESOURCES, document)
    assert bool(ours) == bool(theirs), f"ours: {ours or 'accepted'}\ntheirs: {theirs or 'accepted'}"


@settings(
    max_examples=2000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(document=documents())
def test_the_server_and_the_parser_judge_every_spec_alike(
    api: KubeApi, document: dict[str, Any]
) -> None:
    assert_judged_alike(api, document)


@settings(max_examples=200, deadline=None)
@given(
    first=st.sampled_from([*KEPT, *(changes for changes, _ in BROKEN.values())]),
    second=st.sampled_from([*KEPT, *(changes for changes, _ in BROKEN.values())]),
)
def test_rules_that_meet_in_one_spec_are_judged_alike(
    api: KubeApi, first: dict[str, Any], second: dict[str, Any]
) -> None:
    try:
        document = changed({**in_spec(first), **in_spec(second)})
    except (KeyError, AttributeError):
        assume(False)
    assert_judged_alike(api, document)
