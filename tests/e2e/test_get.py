"""`pserve get` against a real API server, as `kubectl get` would show its answers."""

import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.crd import NAME, crd

from engine_server import PATIENCE_S, wait_until
from kube_cluster import KubeApi, control_plane, starter
from resource_documents import changed

NAMESPACE = f"get-{secrets.token_hex(4)}"
EMPTY = f"{NAMESPACE}-empty"
RESOURCES = f"/apis/pipelineserve.dev/v1alpha1/namespaces/{NAMESPACE}/pipelineserves"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
COLUMNS = ["NAME", "READY", "REPLICAS", "STAGES", "TTFT", "TPOT", "SLO", "MODE", "AGE"]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """An API server with two resources, one of which has a status."""
    if starter() is None:
        pytest.skip("needs a Kubernetes: KUBECONFIG, or PIPELINESERVE_TEST_CLUSTER to start one")
    with control_plane(tmp_path_factory.mktemp("kube")) as cluster:
        cluster.apply(f"{CRDS}/{NAME}", crd())
        wait_until(
            lambda: cluster.get(f"{CRDS}/{NAME}").get("status", {}).get("acceptedNames", {}),
            lambda names: names.get("plural") == "pipelineserves",
        )
        for name in (NAMESPACE, EMPTY):
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            cluster.apply(f"/api/v1/namespaces/{name}", space)
        for name in ("one", "two"):
            cluster.apply(f"{RESOURCES}/{name}", changed({"metadata.name": name}))
        yield cluster
        for name in (NAMESPACE, EMPTY):
            cluster.delete(f"/api/v1/namespaces/{name}")


def command(api: KubeApi, *arguments: str) -> list[str]:
    program = [sys.executable, "-m", "pipelineserve_cli.main", "get"]
    return [*program, f"--kubeconfig={api.kubeconfig}", *arguments]


def get(api: KubeApi, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(api, *arguments), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


def test_all_of_a_namespace_are_shown_with_the_printer_columns(api: KubeApi) -> None:
    found = get(api, "-n", NAMESPACE)
    assert (found.returncode, found.stderr) == (0, "")
    names, *lines = rows(found.stdout)
    assert names == COLUMNS
    assert [line[0] for line in lines] == ["one", "two"]
    stages = names.index("STAGES")
    assert {line[stages] for line in lines} == {str(changed({})["spec"]["parallelism"]["stages"])}
    assert all(line[names.index("READY")] == "Unknown" for line in lines)
    assert found.stdout.index("READY") == found.stdout.splitlines()[1].index("Unknown")


def test_the_wide_form_has_reason_control_and_endpoint_too(api: KubeApi) -> None:
    names, line = rows(get(api, "two", "-n", NAMESPACE, "-o", "wide").stdout)
    assert names == [*COLUMNS, "REASON", "CONTROL", "ENDPOINT"]
    assert (line[0], line[names.index("REASON")]) == ("two", "Pending")


def test_all_namespaces_are_shown_with_their_names(api: KubeApi) -> None:
    names, *lines = rows(get(api, "-A").stdout)
    assert names == ["NAMESPACE", *COLUMNS]
    assert [NAMESPACE, "one"] in [line[:2] for line in lines]


def test_resources_are_given_whole_as_json_and_yaml(api: KubeApi) -> None:
    one = json.loads(get(api, "one", "-n", NAMESPACE, "-o", "json").stdout)
    assert (one["kind"], one["metadata"]["name"]) == ("PipelineServe", "one")
    assert yaml.safe_load(get(api, "one", "-n", NAMESPACE, "-o", "yaml").stdout) == one
    listed = json.loads(get(api, "-n", NAMESPACE, "-o", "json").stdout)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["one", "two"]


def test_what_changes_is_shown_while_it_is_watched(api: KubeApi) -> None:
    lines: list[str] = []
    with subprocess.Popen(
        command(api, "-n", NAMESPACE, "-w"),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=lambda: lines.extend(process.stdout))  # type: ignore[arg-type]
        reader.start()
        wait_until(lambda: len(lines), lambda number: number >= 3)
        api.apply(f"{RESOURCES}/three", changed({"metadata.name": "three"}))
        wait_until(lambda: [line for line in lines if line.startswith("three")], bool)
        process.send_signal(2)
        assert process.wait(PATIENCE_S) == 0
        reader.join()
    api.delete(f"{RESOURCES}/three")


def test_nothing_is_said_of_an_empty_namespace(api: KubeApi) -> None:
    found = get(api, "-n", EMPTY)
    assert (found.returncode, found.stdout) == (0, "")
    assert found.stderr == f"No resources found in {EMPTY} namespace.\n"


def refused(api: KubeApi, *arguments: str) -> str:
    found = get(api, *arguments)
    assert (found.returncode, found.stdout) == (1, "")
    assert "Traceback" not in found.stderr
    assert found.stderr.startswith("error: ")
    return found.stderr.replace("\n", " ")


def test_a_resource_that_is_not_there_is_named(api: KubeApi) -> None:
    assert 'pipelineserves.pipelineserve.dev "none" not found' in refused(
        api, "none", "-n", NAMESPACE
    )


def test_a_context_that_is_not_there_is_named(api: KubeApi) -> None:
    text = refused(api, "--context=elsewhere")
    assert "elsewhere" in text
    assert "expected a kubeconfig" in text


def changed_config(api: KubeApi, path: Path, **changes: Any) -> Path:
    """A kubeconfig whose cluster or user has other fields."""
    document = yaml.safe_load(api.kubeconfig.read_text())
    for section, fields in changes.items():
        document[f"{section}s"][0][section] = {**document[f"{section}s"][0][section], **fields}
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_server_that_does_not_answer_is_said_once(api: KubeApi, tmp_path: Path) -> None:
    nowhere = {"server": "https://127.0.0.1:1"}
    config = changed_config(api, tmp_path / "config", cluster=nowhere)
    text = refused(api, f"--kubeconfig={config}")
    assert "the API server https://127.0.0.1:1 does not answer" in text
    assert text.count("Connection refused") == 1


def test_who_may_not_look_is_told_which_right_is_missing(api: KubeApi, tmp_path: Path) -> None:
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/looker"
    api.apply(
        account, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "looker"}}
    )
    reply = api._client.post(f"{account}/token", json={"spec": {}})
    token = reply.json()["status"]["token"]
    document = yaml.safe_load(api.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    config = tmp_path / "config"
    config.write_text(yaml.safe_dump(document))
    text = refused(api, f"--kubeconfig={config}", "-n", NAMESPACE)
    assert "answers 403" in text
    assert "ask for the right to get, list and watch pipelineserves.pipelineserve.dev" in text


def test_without_a_kubeconfig_it_says_where_one_is_looked_for(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "pipelineserve_cli.main", "get"],
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": ""},
        timeout=PATIENCE_S,
        check=False,
    )
    assert found.returncode == 1
    assert "expected a kubeconfig by --kubeconfig, KUBECONFIG or ~/.kube/config" in found.stderr
