"""A real Kubernetes for tests: one that is given, or one started for them on this machine.

`KUBECONFIG` names a cluster that the tests may use. Without it, a program that starts one is looked
for: `PIPELINESERVE_TEST_CLUSTER`, else `../shared/cluster/cluster` beside the checkout.
"""

import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

_ROOT = Path(__file__).parents[2]
_START_TIMEOUT_S = 240
_REQUEST_TIMEOUT_S = 60.0


def starter() -> Path | None:
    """The program that starts a cluster; None if there is none here."""
    given = os.environ.get("PIPELINESERVE_TEST_CLUSTER")
    path = Path(given) if given else _ROOT.parent / "shared" / "cluster" / "cluster"
    return path if path.is_file() else None


def foreign_definitions() -> list[dict[str, Any]]:
    """Definitions of other projects' kinds: `PIPELINESERVE_TEST_CRDS`, else `../shared/crds`."""
    given = os.environ.get("PIPELINESERVE_TEST_CRDS")
    folder = Path(given) if given else _ROOT.parent / "shared" / "crds"
    return [yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))]


@contextmanager
def control_plane(folder: Path) -> Iterator["KubeApi"]:
    """An API server with controllers and without nodes, for the length of the block."""
    if given := os.environ.get("KUBECONFIG"):
        with closing(KubeApi(Path(given))) as api:
            yield api
        return
    program = starter()
    if program is None:
        raise LookupError("no cluster is given and none can be started here")
    started = subprocess.run(
        [str(program), "up", "--dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=_START_TIMEOUT_S,
        check=False,
    )
    try:
        if started.returncode != 0:
            raise RuntimeError(f"the cluster did not start:\n{started.stdout}{started.stderr}")
        with closing(KubeApi(folder / "admin.kubeconfig")) as api:
            yield api
    finally:
        down = [str(program), "down", "--dir", str(folder)]
        subprocess.run(down, capture_output=True, timeout=_START_TIMEOUT_S, check=False)


class KubeApi:
    """Requests to an API server with the certificate of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cadata=_decoded(cluster, "certificate-authority"))
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(_decoded(user, "client-certificate") + "\n" + _decoded(user, "client-key"))
            pair.flush()
            context.load_cert_chain(pair.name)
        self._client = httpx.Client(
            base_url=cluster["server"], verify=context, timeout=_REQUEST_TIMEOUT_S, trust_env=False
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, path: str) -> dict[str, Any]:
        """An object or a list."""
        return _checked(self._client.get(path))

    def apply(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply; what the server made of it."""
        reply = self._client.patch(
            path,
            params={"fieldManager": "test", "force": "true"},
            content=json.dumps(document),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        return _checked(reply)

    def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Post a document; what the server made of it."""
        return _checked(self._client.post(path, json=document))

    def merge(self, path: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change these fields of an object as a user would."""
        headers = {"Content-Type": "application/merge-patch+json"}
        return _checked(self._client.patch(path, content=json.dumps(changes), headers=headers))

    def merge_if_there(self, path: str, changes: Mapping[str, Any]) -> None:
        """The same, of an object that may have gone meanwhile."""
        headers = {"Content-Type": "application/merge-patch+json"}
        reply = self._client.patch(path, content=json.dumps(changes), headers=headers)
        if reply.status_code != httpx.codes.NOT_FOUND:
            _checked(reply)

    def text(self, path: str) -> str:
        """What is no JSON, such as metrics."""
        reply = self._client.get(path)
        if not reply.is_success:
            raise AssertionError(f"GET {path}: {reply.text}")
        return reply.text

    def try_apply(self, path: str, document: Mapping[str, Any]) -> str:
        """What the server has against applying this object, nothing being changed; or nothing."""
        reply = self._client.patch(
            path,
            params={
                "fieldManager": "test",
                "force": "true",
                "dryRun": "All",
                "fieldValidation": "Strict",
            },
            content=json.dumps(document),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        return "" if reply.is_success else str(reply.json()["message"])

    def delete(self, path: str) -> None:
        """Begin to delete an object and what belongs to it."""
        _checked(self._client.delete(path))

    def try_create(self, path: str, document: Mapping[str, Any]) -> str:
        """What the server has against this object, nothing being created; empty if nothing."""
        parameters = {"dryRun": "All", "fieldValidation": "Strict"}
        reply = self._client.post(path, params=parameters, json=document)
        return "" if reply.is_success else str(reply.json()["message"])


def _decoded(section: Mapping[str, str], name: str) -> str:
    if f"{name}-data" in section:
        return base64.b64decode(section[f"{name}-data"]).decode()
    return Path(section[name]).read_text()


def _checked(reply: httpx.Response) -> dict[str, Any]:
    if not reply.is_success:
        raise AssertionError(f"{reply.request.method} {reply.request.url}: {reply.text}")
    document: dict[str, Any] = reply.json()
    return document
