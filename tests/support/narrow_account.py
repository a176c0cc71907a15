"""The chart's own ServiceAccount for an operator, with the rights that a test grants."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import helm_chart
from kube_cluster import KubeApi

JsonObject = dict[str, Any]

_ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/{}"
_FORBIDDEN = re.compile(
    r'cannot (\w+) resource "([\w/]+)" in API group "([\w.]*)" in the namespace "([\w-]+)"'
)
_ADDRESSES = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts/{}",
    "Secret": "/api/v1/namespaces/{}/secrets/{}",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}",
    "Role": _ROLES.format("{}", "roles/{}"),
    "RoleBinding": _ROLES.format("{}", "rolebindings/{}"),
}


class Right(NamedTuple):
    """One verb on one kind in one namespace."""

    namespace: str
    group: str
    resource: str
    verb: str


class NarrowAccount:
    """What a release of the chart gives its operator, without the operator.

    Args:
        api: as an administrator.
        system: namespace of the release, which is there.
        watched: namespace that the operator looks after, which is there.
    """

    def __init__(self, api: KubeApi, system: str, watched: str) -> None:
        self._api = api
        self._system = system
        objects = helm_chart.rendered({"watchNamespaces": [watched]}, system)
        kept = [one for one in objects if one["kind"] in _ADDRESSES and not _is_hook(one)]
        for one in kept:
            self._apply(one)
        self._roles = helm_chart.of_kind(kept, "Role")
        (account,) = helm_chart.of_kind(kept, "ServiceAccount")
        self._name = account["metadata"]["name"]

    @property
    def user(self) -> str:
        """As the API server calls it."""
        return f"system:serviceaccount:{self._system}:{self._name}"

    def all_rights(self) -> set[Right]:
        """That the chart gives."""
        return {
            right
            for role in self._roles
            for rule in role["rules"]
            for right in _rights(role["metadata"]["namespace"], rule)
        }

    def grant(self, granted: Iterable[Right]) -> None:
        """These of the chart's rights, and no others."""
        chosen = set(granted)
        for role in self._roles:
            namespace = role["metadata"]["namespace"]
            narrowed = (_narrowed(namespace, rule, chosen) for rule in role["rules"])
            self._apply({**role, "rules": [one for rules in narrowed for one in rules]})

    def kubeconfig(self, folder: Path) -> Path:
        """With a token of this account."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        path = f"{_ADDRESSES['ServiceAccount'].format(self._system, self._name)}/token"
        token = self._api.create(path, request)["status"]["token"]
        config = yaml.safe_load(self._api.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        if "certificate-authority" in cluster:
            authority = Path(cluster.pop("certificate-authority")).read_bytes()
            cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
        config["users"][0]["user"] = {"token": token}
        target = folder / "narrow.kubeconfig"
        target.write_text(yaml.safe_dump(config))
        return target

    def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Whether the API server would let it; an empty namespace is all of them."""
        attributes = {"verb": verb, "resource": resource, "namespace": namespace, "name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": self.user, "resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        allowed: bool = self._api.create(path, review)["status"]["allowed"]
        return allowed

    def _apply(self, document: JsonObject) -> None:
        metadata = document["metadata"]
        path = _ADDRESSES[document["kind"]].format(metadata["namespace"], metadata["name"])
        self._api.apply(path, document)


def refused(texts: Iterable[str]) -> set[Right]:
    """The rights that were missed, in the API server's words."""
    return {
        Right(namespace, group, resource, verb)
        for text in texts
        for verb, resource, group, namespace in _FORBIDDEN.findall(text.replace('\\"', '"'))
    }


def spoken(lines: Iterable[JsonObject]) -> Iterator[str]:
    """The text of log lines."""
    return (json.dumps(line) for line in lines)


def _is_hook(document: JsonObject) -> bool:
    """Whether it is there only while `helm test` runs."""
    return "helm.sh/hook" in document["metadata"].get("annotations", {})


def _rights(namespace: str, rule: JsonObject) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield Right(namespace, group, resource, verb)


def _narrowed(namespace: str, rule: JsonObject, chosen: set[Right]) -> Iterator[JsonObject]:
    for right in _rights(namespace, rule):
        if right in chosen:
            yield {
                **rule,
                "apiGroups": [right.group],
                "resources": [right.resource],
                "verbs": [right.verb],
            }
