"""`kubectl` and `helm` for tests: those on the PATH, or those that come with the test cluster."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kube_cluster import starter

_TIMEOUT_S = 240


@cache
def program(name: str) -> Path | None:
    """Where `kubectl` or `helm` is; None if it is nowhere."""
    if found := shutil.which(name):
        return Path(found)
    start = starter()
    if start is None:
        return None
    assets = subprocess.run([start, "assets"], capture_output=True, text=True, check=True)
    path = Path(assets.stdout.strip()) / name
    return path if path.exists() else None


def needed(name: str) -> Path:
    """Where the program is.

    Raises:
        LookupError: it is nowhere.
    """
    if (found := program(name)) is None:
        raise LookupError(f"{name} is neither on the PATH nor in a test cluster's folder")
    return found


class CommandError(AssertionError):
    """A program failed; the message is what it said."""


class ClusterPrograms:
    """`kubectl` and `helm` with one kubeconfig, or with none that they could use."""

    def __init__(self, kubeconfig: Path | None = None) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig or os.devnull)}

    def kubectl(self, *arguments: str, document: Any = None) -> str:
        """Run it; a document is what it reads.

        Raises:
            CommandError: it fails.
        """
        return self._run(needed("kubectl"), arguments, document)

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run it, with these values.

        Raises:
            CommandError: it fails.
        """
        given = () if values is None else ("--values=-",)
        return self._run(needed("helm"), (*arguments, *given), values)

    def get(self, *arguments: str) -> Any:
        """What `kubectl get` finds, as JSON.

        Raises:
            CommandError: it is not there.
        """
        return json.loads(self.kubectl("get", "--output=json", *arguments))

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """What a listing `kubectl get` finds."""
        found: list[dict[str, Any]] = self.get(*arguments)["items"]
        return found

    def _run(self, path: Path, arguments: tuple[str, ...], document: Any) -> str:
        done = subprocess.run(
            [str(path), *arguments],
            input=None if document is None else json.dumps(document),
            stdin=subprocess.DEVNULL if document is None else None,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=self._environment,
            check=False,
        )
        if done.returncode != 0:
            raise CommandError(f"{path.name} {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
        return done.stdout
