"""What all groups of a resource share: objectives, Services, who may reach it, budgets, alerts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pipelineserve import metrics
from pipelineserve.api import resource_from_document
from pipelineserve.errors import InvalidInputError
from pipelineserve_controller.objectives import objectives_from_text, objectives_of
from pipelineserve_operator.render import (
    JsonObject,
    OperatorSettings,
    all_objects,
    endpoint,
    leader_selector,
    shared_objects,
    subject_of,
)
from promql import TARGET_LABELS, known, selected
from rendering import SETTINGS, UID, a_subject, of_kind, pods_of
from resource_documents import changed

BARE = OperatorSettings(engine_image="e", controller_image="c")


def one_of(
    kind: str, changes: dict[str, Any] | None = None, settings: OperatorSettings = SETTINGS
) -> JsonObject:
    (found,) = of_kind(shared_objects(a_subject(changes), settings), kind)
    return found


def kinds(changes: dict[str, Any], settings: OperatorSettings = SETTINGS) -> list[str]:
    return [one["kind"] for one in shared_objects(a_subject(changes), settings)]


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_the_controller_reads_the_objectives_as_the_resource_says_them() -> None:
    changes = {
        "slo": {"ttft": {"milliseconds": 900, "percentile": 95}, "windowSeconds": 60},
        "chunking": {"policy": "Greedy", "minTokens": 16, "maxTokens": 4096},
        "rebalancing": {"mode": "Off"},
        "queueing": {"order": "Triage", "lateSharePercent": 7},
        "control": {"mode": "Advisory", "leaseSeconds": 9},
    }
    text = one_of("ConfigMap", changes)["data"]["objectives.json"]
    objectives, _ = objectives_from_text(text, "objectives.json", generation=99)
    subject = a_subject(changes)
    document = {
        "metadata.uid": UID,
        "metadata.generation": subject.generation,
        **{f"spec.{name}": value for name, value in changes.items()},
    }
    assert objectives == objectives_of(resource_from_document(changed(document), "test"), 99)
    assert (objectives.resource_uid, objectives.generation) == (UID, 3)


def test_the_ca_bundle_travels_with_the_objectives() -> None:
    assert one_of("ConfigMap")["data"]["ca.crt"] == SETTINGS.ca_bundle


def test_an_edit_of_what_an_engine_starts_with_reaches_the_next_start() -> None:
    data = one_of("ConfigMap", {"chunking.staticTokens": 64, "recovery.maxRestarts": 9})["data"]
    assert (data["static-chunk-tokens"], data["recovery-max-restarts"]) == ("64", "9")
    raised = one_of("ConfigMap", {"chunking.maxTokens": 4096})["data"]
    assert raised["max-chunk-tokens"] == "4096"


def test_services_select_all_members_and_leaders() -> None:
    changes = {"parallelism": {"stages": 4, "stagesPerPod": 2}}
    objects = all_objects(a_subject(changes), SETTINGS)
    members, api = of_kind(objects, "Service")
    leader, worker = pods_of(objects)
    assert selects(members["spec"]["selector"], worker.labels)
    assert selects(api["spec"]["selector"], leader.labels)
    assert not selects(api["spec"]["selector"], worker.labels)
    assert (members["spec"]["clusterIP"], members["spec"]["publishNotReadyAddresses"]) == (
        "None",
        True,
    )
    assert "publishNotReadyAddresses" not in api["spec"]


def test_the_serving_port_is_one_that_the_leaders_container_names() -> None:
    objects = all_objects(a_subject(), SETTINGS)
    (port,) = of_kind(objects, "Service")[1]["spec"]["ports"]
    names = [one["name"] for one in pods_of(objects)[0].container("engine")["ports"]]
    assert port["targetPort"] in names


def test_the_endpoint_names_the_serving_service_and_its_port() -> None:
    api = of_kind(shared_objects(a_subject(), SETTINGS), "Service")[1]
    name, (port,) = api["metadata"]["name"], api["spec"]["ports"]
    assert endpoint(a_subject()) == f"http://{name}.models.svc:{port['port']}/v1"


def test_the_selector_of_the_scale_subresource_is_that_of_the_serving_service() -> None:
    api = of_kind(shared_objects(a_subject(), SETTINGS), "Service")[1]
    pairs = [f"{key}={value}" for key, value in api["spec"]["selector"].items()]
    assert leader_selector("small") == ",".join(pairs)


def test_the_account_of_the_pods_shows_no_token_to_the_api() -> None:
    account = one_of("ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    (pod,) = pods_of(all_objects(a_subject(), SETTINGS))
    assert pod.spec["serviceAccountName"] == account["metadata"]["name"]


@pytest.mark.parametrize(
    ("ingress_from", "rules"),
    [
        (..., [{"ports": [{"port": 8000, "protocol": "TCP"}]}]),
        ([], []),
        (
            [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
            [
                {
                    "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
                    "ports": [{"port": 8000, "protocol": "TCP"}],
                }
            ],
        ),
    ],
    ids=["nothing given", "nobody", "some"],
)
def test_clients_reach_the_api_only_as_the_resource_says(
    ingress_from: Any, rules: list[JsonObject]
) -> None:
    given = {} if ingress_from is ... else {"networkPolicy": {"ingressFrom": ingress_from}}
    policy = one_of("NetworkPolicy", given)["spec"]
    members, *others = policy["ingress"]
    assert members == {"from": [{"podSelector": policy["podSelector"]}]}
    assert policy["podSelector"]["matchLabels"] == {"pipelineserve.dev/name": "small"}
    assert others == rules


def test_monitoring_opens_the_metrics_to_its_peers_and_to_nobody_else() -> None:
    changes = {"monitoring.enabled": True, "networkPolicy": {"ingressFrom": []}}
    _, monitoring = one_of("NetworkPolicy", changes)["spec"]["ingress"]
    assert monitoring["from"] == list(SETTINGS.monitoring_peers)
    assert [port["port"] for port in monitoring["ports"]] == [8000, 8090]
    closed = replace(SETTINGS, monitoring_peers=())
    assert len(one_of("NetworkPolicy", changes, closed)["spec"]["ingress"]) == 1


@pytest.mark.parametrize(
    ("replicas", "max_unavailable", "min_available"),
    [(3, 1, 4), (3, 2, 2), (2, 1, 2), (3, 3, None), (3, 5, None), (1, 1, None), (0, 1, None)],
)
def test_a_disruption_leaves_whole_groups(
    replicas: int, max_unavailable: int, min_available: int | None
) -> None:
    changes = {
        "replicas": replicas,
        "rollout.maxUnavailable": max_unavailable,
        "parallelism": {"stages": 4, "stagesPerPod": 2},
    }
    budgets = of_kind(shared_objects(a_subject(changes), SETTINGS), "PodDisruptionBudget")
    assert [one["spec"]["minAvailable"] for one in budgets] == (
        [] if min_available is None else [min_available]
    )
    assert all(one["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" for one in budgets)


def test_one_replica_has_no_budget_even_if_none_may_be_unavailable() -> None:
    changes = {"replicas": 1, "rollout": {"maxSurge": 1, "maxUnavailable": 0}}
    assert "PodDisruptionBudget" not in kinds(changes)


def test_monitors_are_made_where_they_are_wanted_and_known() -> None:
    wanted = {"monitoring.enabled": True}
    assert {"PodMonitor", "PrometheusRule"} <= set(kinds(wanted))
    assert {"PodMonitor", "PrometheusRule"} & set(kinds({})) == set()
    assert {"PodMonitor", "PrometheusRule"} & set(kinds(wanted, BARE)) == set()


def test_monitors_carry_the_labels_by_which_a_prometheus_finds_them() -> None:
    changes = {"monitoring": {"enabled": True, "labels": {"release": "p"}, "interval": "7s"}}
    for kind in ("PodMonitor", "PrometheusRule"):
        assert one_of(kind, changes)["metadata"]["labels"]["release"] == "p"
    endpoints = one_of("PodMonitor", changes)["spec"]["podMetricsEndpoints"]
    assert [(one["port"], one["interval"]) for one in endpoints] == [("api", "7s"), ("page", "7s")]


def rule_group(changes: dict[str, Any]) -> dict[str, Any]:
    (group,) = one_of("PrometheusRule", {"monitoring.enabled": True, **changes})["spec"]["groups"]
    found: dict[str, Any] = group
    return found


def rules(changes: dict[str, Any]) -> dict[str, str]:
    found = rule_group(changes)["rules"]
    return {rule["alert"]: rule["expr"] for rule in found if "alert" in rule}


def recordings(changes: dict[str, Any]) -> dict[str, str]:
    found = rule_group(changes)["rules"]
    return {rule["record"]: rule["expr"] for rule in found if "record" in rule}


def test_an_alert_holds_each_target_against_its_percentile() -> None:
    found = rules({"slo": {"tpot": {"percentile": 95, "milliseconds": 80}, "windowSeconds": 120}})
    own = 'namespace="models",pipelineserve_dev_name="small"'
    assert found["PipelineServeTPOTAboveTarget"] == (
        "histogram_quantile(0.95, sum by (le) "
        f"(rate(pipelineserve_tpot_seconds_bucket{{{own}}}[120s]))) > 0.08"
    )
    assert "PipelineServeTTFTAboveTarget" not in found


def test_a_rate_spans_several_scrapes_however_short_the_window_is() -> None:
    found = rules({"slo.windowSeconds": 10, "monitoring.interval": "1m"})
    assert "[240s]" in found["PipelineServeTTFTAboveTarget"]


EVERY_ALERT: dict[str, Any] = {
    "slo": {
        "ttft": {"percentile": 99, "milliseconds": 700},
        "tpot": {"percentile": 50, "milliseconds": 80},
    },
    "monitoring.interval": "500ms",
}


def test_prometheus_takes_every_alert_and_the_product_has_what_they_ask_for() -> None:
    series = known((*metrics.CATALOGUE, *metrics.CONTROLLER_CATALOGUE))
    found = rules(EVERY_ALERT)
    assert len(found) == 6
    for expression in found.values():
        asked = selected(expression)
        assert asked
        for one in asked:
            assert one.labels <= series[one.name], expression
            assert one.labels >= TARGET_LABELS, "of this resource only"


@pytest.mark.parametrize(
    "expression",
    [
        "sum by (le) (rate(pipelineserve_ttft_seconds_bucket[60s])",
        "rate(pipelineserve_ttft_seconds_bucket) > 1",
        "histogram_quantile(pipelineserve_ttft_seconds_bucket, 0.9)",
        'pipelineserve_slo_feasible{namespace="a"} = 0',
        '{namespace="a"} > 0',
    ],
)
def test_what_prometheus_would_not_take_is_refused_here_too(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        selected(expression)


SGLANG = {"engine.type": "SGLang"}


def test_sglangs_series_get_our_names_before_the_same_alerts_read_them() -> None:
    group = rule_group({**SGLANG, "monitoring.interval": "7s"})
    kinds_of_rules = ["record" in rule for rule in group["rules"]]
    assert kinds_of_rules == sorted(kinds_of_rules, reverse=True)
    assert group["interval"] == "7s"
    of_sglang, of_torch = rules(SGLANG), rules({})
    for name in ("PipelineServeTTFTAboveTarget", "PipelineServeControlIneffective"):
        assert of_sglang[name] == of_torch[name]
    recorded = set(recordings(SGLANG))
    assert {f"pipelineserve_{name}_seconds_bucket" for name in ("ttft", "tpot")} <= recorded


def test_a_recording_keeps_each_pod_apart_and_takes_the_first_rank() -> None:
    found = recordings(SGLANG)
    by = "namespace, pod, pipelineserve_dev_name, pipelineserve_dev_replica"
    own = 'namespace="models",pipelineserve_dev_name="small"'
    assert found["pipelineserve_ttft_seconds_bucket"] == (
        f"sum by ({by}, le) (sglang:time_to_first_token_seconds_bucket{{{own}}})"
    )
    first = 'pp_rank="0",tp_rank="0",priority=""'
    waiting = f"sum by ({by}) (sglang:num_queue_reqs{{{own},{first}}})"
    assert found["pipelineserve_requests_waiting"] == waiting


def test_only_what_an_engine_tells_has_an_alert() -> None:
    of_sglang, of_torch = rules(SGLANG), rules({})
    assert set(of_torch) - set(of_sglang) == {
        "PipelineServeStagesRestarted",
        "PipelineServeRequestsDoNotAddUp",
    }
    assert set(of_sglang) - set(of_torch) == {"PipelineServeEngineInactive"}
    assert of_sglang["PipelineServeEngineInactive"].startswith("min(pipelineserve_control_active{")
    assert recordings({}) == {}
    assert "interval" not in rule_group({})


def test_what_pods_need_comes_before_them() -> None:
    order = [one["kind"] for one in all_objects(a_subject(), SETTINGS)]
    last = order.index("StatefulSet")
    for kind in ("ServiceAccount", "ConfigMap", "Service", "NetworkPolicy"):
        assert order.index(kind) < last


def test_without_an_operator_to_attend_to_the_sidecar_has_no_token() -> None:
    (pod,) = pods_of(all_objects(a_subject(), BARE))
    assert "operator" not in str(pod.container("controller"))


def test_a_resource_that_no_api_server_has_stored_is_refused() -> None:
    resource = resource_from_document(changed({}), "test")
    with pytest.raises(InvalidInputError) as caught:
        subject_of(resource)
    assert [fault.field for fault in caught.value.faults] == [
        "metadata.namespace",
        "metadata.uid",
        "metadata.generation",
    ]
