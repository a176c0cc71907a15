"""The operator with the chart's rights and no others: they are enough, and each is missed."""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tools.crd import NAME, crd

from engine_server import wait_until
from free_ports import a_free_port
from kube_cluster import KubeApi, control_plane, foreign_definitions, starter
from narrow_account import NarrowAccount, Right, refused, spoken
from operator_process import OperatorProcess, operator_running
from resource_documents import changed, in_spec

pytestmark = pytest.mark.timeout(600)

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MONITORING = ("podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com")
STEP_TIMEOUT_S = 180.0
STEP_LOOK_S = 0.3

JsonObject = dict[str, Any]


@dataclass
class Place:
    """A release's namespace and the one that its operator looks after."""

    api: KubeApi
    system: str
    watched: str
    folder: Path
    account: NarrowAccount = field(init=False)

    def __post_init__(self) -> None:
        """With nothing but what the chart makes for its operator."""
        for name in (self.system, self.watched):
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.api.apply(f"/api/v1/namespaces/{name}", space)
        self.account = NarrowAccount(self.api, self.system, self.watched)

    def path(self, root: str, plural: str, name: str = "") -> str:
        """Of a kind's objects where resources are, or of one."""
        return f"/{root}/namespaces/{self.watched}/{plural}" + (f"/{name}" if name else "")

    def resource(self, name: str) -> str:
        """Path of a resource."""
        return self.path("apis/pipelineserve.dev/v1alpha1", "pipelineserves", name)

    def names(self, root: str, plural: str) -> set[str]:
        """Of what is there of a kind and says that it belongs to a resource."""
        query = "" if plural == "secrets" else "?labelSelector=pipelineserve.dev%2Fname"
        found = self.api.get(f"{self.path(root, plural)}{query}")["items"]
        return {one["metadata"]["name"] for one in found}

    def sets(self) -> set[str]:
        """Of the resource that most is about."""
        found = self.names("apis/apps/v1", "statefulsets")
        return {name for name in found if name.startswith("small-")}

    def condition(self, kind: str, name: str) -> tuple[str, str]:
        """Status and reason; empty while it is not there."""
        conditions = (self.api.get(self.resource(name)).get("status") or {}).get("conditions", ())
        found: JsonObject = next((one for one in conditions if one["type"] == kind), {})
        return found.get("status", ""), found.get("reason", "")

    def edit(self, name: str, changes: JsonObject) -> None:
        """A spec, as a user would."""
        self.api.merge(self.resource(name), {"spec": changes})

    def create(self, name: str, changes: JsonObject) -> None:
        """A resource, by path below spec."""
        spec = in_spec({"engine.type": "Torch", **changes})
        self.api.apply(self.resource(name), changed({"metadata.name": name, **spec}))

    def num_repaired(self) -> int:
        """How often the events tell of drift."""
        events = self.api.get(self.path("api/v1", "events"))["items"]
        return max((one["count"] for one in events if one["reason"] == "Repaired"), default=0)

    def drift(self) -> None:
        """Somebody changes what is ours."""
        path = self.path("api/v1", "configmaps", "small-control")
        self.api.merge(path, {"data": {"static-chunk-tokens": "1"}})

    def remind(self) -> None:
        """So that what failed is looked at now, not after a pause that grows."""
        found = self.api.get(self.resource("").rstrip("/"))["items"]
        note = {"metadata": {"annotations": {"test/reminded": secrets.token_hex(4)}}}
        for one in found:
            self.api.merge_if_there(self.resource(one["metadata"]["name"]), note)


@dataclass(frozen=True)
class Step:
    """Something that users do, and what the operator makes of it."""

    act: Callable[[], None]
    is_done: Callable[[], bool]


def story(place: Place) -> Iterator[Step]:
    """All that the operator does with the rights it has."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    place.api.apply(place.path("api/v1", "resourcequotas", "none"), quota)
    four = {"small-r0-e0", "small-r0-e0-w", "small-r1-e0", "small-r1-e0-w"}
    yield Step(
        lambda: place.create(
            "small",
            {"replicas": 2, "parallelism.stagesPerPod": 2, "monitoring.enabled": True},
        ),
        lambda: (
            place.sets() == four
            and place.names("apis/policy/v1", "poddisruptionbudgets") == {"small-pods"}
            and place.condition("Ready", "small") == ("False", "PodsRefused")
        ),
    )
    yield Step(
        lambda: place.create("claim", {"model.uri": "pvc://weights/a"}),
        lambda: "weights" in str(place.api.get(place.resource("claim")).get("status")),
    )
    for number in (1, 2):
        yield Step(place.drift, lambda number=number: place.num_repaired() >= number)  # type: ignore[misc]
    yield Step(
        lambda: place.edit("small", {"model": {"uri": "hf://org/another"}}),
        lambda: {"small-r0-e1", "small-r1-e1"} <= place.sets() and not four & place.sets(),
    )
    yield Step(
        lambda: place.edit("small", {"replicas": 1, "monitoring": {"enabled": False}}),
        lambda: (
            place.sets() == {"small-r0-e1", "small-r0-e1-w"}
            and not place.names("apis/policy/v1", "poddisruptionbudgets")
            and not place.names("apis/monitoring.coreos.com/v1", "podmonitors")
            and not place.names("apis/monitoring.coreos.com/v1", "prometheusrules")
        ),
    )


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """An API server with the definitions that matter here."""
    if starter() is None and "KUBECONFIG" not in os.environ:
        pytest.skip("needs a Kubernetes: KUBECONFIG, or PIPELINESERVE_TEST_CLUSTER to start one")
    with control_plane(tmp_path_factory.mktemp("kube")) as cluster:
        foreign = {one["metadata"]["name"]: one for one in foreign_definitions()}
        for name, one in {NAME: crd(), **{name: foreign[name] for name in MONITORING}}.items():
            cluster.apply(f"{DEFINITIONS}/{name}", one)
            wait_until(lambda name=name: is_established(cluster, name), bool)  # type: ignore[misc]
        yield cluster


def is_established(api: KubeApi, name: str) -> bool:
    conditions = api.get(f"{DEFINITIONS}/{name}").get("status", {}).get("conditions") or []
    return {"Established", "NamesAccepted"} <= {
        one["type"] for one in conditions if one["status"] == "True"
    }


# What the plugin OwnerReferencesPermissionEnforcement asks, which OpenShift has and others may too:
# who makes the deletion of an owner wait must be allowed to change the owner's finalizers.
OWNERS_ARE_CHECKED = """
!has(object.metadata.ownerReferences) || object.metadata.ownerReferences.all(owner,
  owner.kind != 'PipelineServe' || !has(owner.blockOwnerDeletion) || !owner.blockOwnerDeletion ||
  authorizer.group('pipelineserve.dev').resource('pipelineserves').subresource('finalizers')
    .namespace(request.namespace).name(owner.name).check('update').allowed())
"""
IN_THE_API_SERVERS_WORDS = (
    '\'cannot update resource "pipelineserves/finalizers" in API group "pipelineserve.dev" '
    "in the namespace \"' + request.namespace + '\"'"
)
# Is refused from the moment on that the policy is in force.
REFUSED = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "refused", "labels": {"test/refused": "yes"}},
}


@contextmanager
def checking_owners(api: KubeApi, namespace: str) -> Iterator[None]:
    """A policy of the cluster that checks owners as the plugin does, in this namespace."""
    root = "/apis/admissionregistration.k8s.io/v1"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": namespace},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [
                    {
                        "apiGroups": ["*"],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["*"],
                    }
                ],
            },
            "validations": [
                {
                    "expression": OWNERS_ARE_CHECKED,
                    "messageExpression": IN_THE_API_SERVERS_WORDS,
                    "reason": "Forbidden",
                },
                {"expression": "!('test/refused' in object.metadata.?labels.orValue({}))"},
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": namespace},
        "spec": {"policyName": namespace, "validationActions": ["Deny"]},
    }
    made = {"validatingadmissionpolicies": policy, "validatingadmissionpolicybindings": binding}
    for plural, one in made.items():
        api.apply(f"{root}/{plural}/{namespace}", one)
    wait_until(lambda: api.try_create(f"/api/v1/namespaces/{namespace}/configmaps", REFUSED), bool)
    yield
    for plural in reversed(made):
        api.delete(f"{root}/{plural}/{namespace}")


@pytest.fixture
def place(api: KubeApi, tmp_path: Path) -> Iterator[Place]:
    """Two namespaces of its own."""
    word = secrets.token_hex(4)
    made = Place(api, f"system-{word}", f"models-{word}", tmp_path)
    with checking_owners(api, made.watched):
        yield made
    for name in (made.watched, made.system):
        api.delete(f"/api/v1/namespaces/{name}")


@contextmanager
def operating(place: Place) -> Iterator[OperatorProcess]:
    flags = (
        f"--lease-namespace={place.system}",
        "--lease-name=pipelineserve-operator",
        "--operator-address=127.0.0.1:1",
        f"--attend-port={a_free_port()}",
    )
    config = place.account.kubeconfig(place.folder)
    with operator_running(config, place.watched, place.folder, *flags) as operator:
        yield operator


def words(place: Place, operator: OperatorProcess) -> Iterator[str]:
    """What the operator says: its log, and conditions of resources."""
    yield from spoken(operator.lines())
    for one in place.api.get(place.resource("").rstrip("/"))["items"]:
        for condition in (one.get("status") or {}).get("conditions", ()):
            yield condition["message"]


def test_the_rights_of_the_chart_are_enough(place: Place) -> None:
    place.account.grant(place.account.all_rights())
    with operating(place) as operator:
        for step in story(place):
            step.act()
            wait_until(step.is_done, bool)
        for name in ("small", "claim"):
            place.api.delete(place.resource(name))
        for root, plural in (("apis/apps/v1", "statefulsets"), ("api/v1", "services")):
            wait_until(lambda at=(root, plural): place.names(*at), lambda left: not left)  # type: ignore[misc]
        assert place.names("api/v1", "secrets") == set()
        assert refused(spoken(operator.lines())) == set()
        assert operator.is_running


class Learning:
    """Grants what was missed, and nothing before."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._all = place.account.all_rights()
        self.granted: set[Right] = set()
        place.account.grant(())

    def carry_out(self, step: Step, operator: OperatorProcess) -> None:
        """Until it is done; what is missed on the way is granted."""
        step.act()
        deadline_s = time.monotonic() + STEP_TIMEOUT_S
        while not step.is_done():
            missed = self.learn(operator)
            assert operator.is_running, operator.lines()[-1]
            assert time.monotonic() < deadline_s, (missed, sorted(self._all - self.granted))
            if missed:
                step.act()
            self._place.remind()
            time.sleep(STEP_LOOK_S)
        self.learn(operator)

    def learn(self, operator: OperatorProcess) -> set[Right]:
        """What was missed since the last time."""
        missed = refused(words(self._place, operator)) - self.granted
        assert missed <= self._all, f"not given by the chart: {missed - self._all}"
        if missed:
            self.granted |= missed
            self._place.account.grant(self.granted)
        return missed


def test_each_right_is_missed_until_it_is_granted(place: Place) -> None:
    learning = Learning(place)
    with operating(place) as operator:
        for step in story(place):
            learning.carry_out(step, operator)
    num_repaired = place.num_repaired()
    again = Step(place.drift, lambda: place.num_repaired() > num_repaired)
    with operating(place) as operator:
        learning.carry_out(again, operator)
    unused = place.account.all_rights() - learning.granted
    assert unused == set()


def test_no_secret_can_be_read_but_that_of_the_operators_own_authorities(place: Place) -> None:
    may = place.account.may
    for namespace in ("", "kube-system", place.watched):
        for verb in ("get", "list", "watch", "update", "patch", "deletecollection"):
            assert not may(verb, "secrets", namespace), (verb, namespace)
            assert not may(verb, "secrets", namespace, "pipelineserve-operator-ca")
    assert may("get", "secrets", place.system, "pipelineserve-operator-ca")
    assert not may("get", "secrets", place.system, "another")
    assert not may("list", "secrets", place.system)
    assert may("create", "secrets", place.watched)
    assert not may("create", "secrets", "kube-system")
