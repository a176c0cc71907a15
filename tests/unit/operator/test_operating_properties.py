"""Whatever happens in whatever order: it ends, nothing is lost, and then nothing is written."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster_in_memory import ClusterInMemory
from operating import Operating
from pipelineserve_operator.cluster import Kind
from random_specs import LIVE, ROLLING

# Each example is a whole life of a resource.
LIVES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

EDITS = st.one_of(
    st.integers(0, 4).map(lambda number: {"replicas": number}),
    st.sampled_from("abc").map(lambda name: {"model.uri": f"hf://org/{name}"}),
    st.integers(100, 3000).map(lambda span: {"slo.ttft.milliseconds": span}),
    st.sampled_from(
        [{"maxSurge": 0, "maxUnavailable": 1}, {"maxSurge": 1, "maxUnavailable": 0}]
    ).map(lambda rollout: {"rollout": rollout}),
    st.sampled_from(["SGLang", "Torch"]).map(lambda name: {"engine.type": name}),
)
HAPPENINGS = st.sampled_from(
    ["look", "restart", "controllers", "ready", "end", "lose a pod", "lose a set", "later"]
)
STEPS = st.lists(st.one_of(EDITS, HAPPENINGS), max_size=25)


def happen(operating: Operating, step: Any) -> None:
    cluster = operating.cluster
    match step:
        case "look":
            operating.look()
        case "restart":
            operating.restart()
        case "controllers":
            cluster.run_controllers()
        case "ready":
            cluster.ready_pods()
        case "end":
            cluster.end_pods()
        case "later":
            cluster.now_s += 50
        case "lose a pod":
            lose(cluster, Kind.POD)
        case "lose a set":
            lose(cluster, Kind.STATEFUL_SET)
        case edit:
            operating.edit(edit)


def lose(cluster: ClusterInMemory, kind: Kind) -> None:
    for one in cluster.of_kind(kind)[:1]:
        del cluster.objects[kind, "models", one["metadata"]["name"]]


@LIVES
@given(STEPS, st.booleans())
def test_it_always_comes_to_rest_and_then_serves_what_is_wanted(
    steps: list[Any], is_spread: bool
) -> None:
    operating = Operating({"parallelism.stagesPerPod": 2} if is_spread else {})
    for step in steps:
        happen(operating, step)
    operating.edit({"engine.type": "Torch"})
    operating.settle()
    wanted = operating.resource["spec"].get("replicas", 1)
    assert operating.status["readyReplicas"] == wanted
    assert operating.status["updatedReplicas"] == wanted
    assert operating.condition("Progressing")[1] == "Complete"
    assert len(operating.names(Kind.STATEFUL_SET)) == wanted * (2 if is_spread else 1)
    assert len(operating.names(Kind.CONTROLLER_REVISION)) == 1
    assert len(operating.names(Kind.SECRET)) == (wanted if is_spread else 0)
    operating.cluster.writes.clear()
    operating.restart()
    operating.look()
    assert operating.cluster.writes == []


@LIVES
@given(st.lists(st.sampled_from(["look", "restart", "controllers", "ready", "end"]), max_size=40))
def test_an_edit_of_healthy_replicas_takes_no_more_down_than_allowed(steps: list[Any]) -> None:
    operating = Operating({"replicas": 4})
    operating.settle()
    operating.edit({"model.uri": "hf://org/another"})
    for step in steps:
        happen(operating, step)
        ready = [
            pod
            for pod in operating.cluster.of_kind(Kind.POD)
            if "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("conditions", [{}])[0].get("status") == "True"
        ]
        assert len(ready) >= 3


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ROLLING, LIVE)
def test_no_valid_resource_makes_a_look_fail(rolling: Any, live: Any) -> None:
    operating = Operating()
    operating.resource["spec"] = {**rolling, **live}
    operating.look()
    operating.cluster.run_controllers()
    operating.look()
    conditions = operating.status["conditions"]
    assert len(conditions) == 10


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=9), st.none() | st.integers() | st.text(max_size=9)))
def test_no_nonsense_in_a_spec_makes_a_look_fail(spec: Any) -> None:
    operating = Operating()
    operating.resource["spec"] = spec
    operating.look()
    assert operating.condition("Stalled")[:2] == ("True", "InvalidSpec")
