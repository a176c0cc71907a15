"""A cluster whose nodes run containers, with the product's images on it: given, or made here.

`KUBECONFIG` names one that the tests may use. It needs `PIPELINESERVE_TEST_IMAGES=PREFIX:TAG`,
images that its nodes can pull, and takes `PIPELINESERVE_TEST_MODEL_CACHE`, a folder of every node
that holds the models; without that, pods fetch theirs. Without `KUBECONFIG` two nodes are started
on this machine and everything is built for them: as root, with the packages that `.ci/run` names.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tools.sources import ROOT

from cluster_programs import ClusterPrograms, program
from kube_cluster import starter
from pipelineserve_engine.models import SilentProgress, default_cache_dir, resolve_model

_NEEDED = ("buildah", "debootstrap", "containerd", "ctr", "runc", "iptables", "conntrack", "ip")
_BASE_IMAGE = "localhost/python:3.11"
_PREFIX, _TAG = "localhost/pipelineserve", "test"
_NUM_NODES = 2
_BUILD_TIMEOUT_S = 1200
_LOAD_TIMEOUT_S = 300
# Two cores run two nodes, their containers and the tests.
_PATIENCE_S = 360.0
_LOOK_PERIOD_S = 1.0  # each look is a process
# Any user may write there: pods run under ids that this machine does not know.
_OPEN = 0o777


ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class NodeCluster:
    """A cluster that runs pods.

    Attributes:
        prefix: of the images' names.
        tag: of the images.
        model_cache: a folder of every node that holds the models; None if pods are to fetch them.
        is_joined: whether this process reaches pods and Services by their addresses.
    """

    programs: ClusterPrograms
    prefix: str
    tag: str
    model_cache: Path | None
    is_joined: bool

    def image(self, component: str) -> str:
        """The full name of a component's image."""
        return f"{self.prefix}/{component}:{self.tag}"


def why_not() -> str | None:
    """Why there can be no such cluster here; None if there can."""
    if program("kubectl") is None or program("helm") is None:
        return "needs kubectl and helm, on the PATH or beside PIPELINESERVE_TEST_CLUSTER"
    if os.environ.get("KUBECONFIG"):
        has_images = ":" in os.environ.get("PIPELINESERVE_TEST_IMAGES", "")
        return (
            None if has_images else "KUBECONFIG is given: PIPELINESERVE_TEST_IMAGES=PREFIX:TAG too"
        )
    if starter() is None:
        return "needs a Kubernetes: KUBECONFIG, or PIPELINESERVE_TEST_CLUSTER to start one"
    if os.geteuid() != 0:
        return "nodes are started by root only"
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    return f"nodes need {', '.join(missing)}; .ci/run installs them" if missing else None


@contextmanager
def node_cluster(folder: Path, model_uri: str) -> Iterator[NodeCluster]:
    """The cluster, for the length of the block; one that was made here is gone afterwards."""
    if given := os.environ.get("KUBECONFIG"):
        yield _given_cluster(Path(given))
        return
    archives = _built_images(folder / "images")
    cache = _model_cache(folder / "models", model_uri)
    own = folder / "cluster"
    try:
        _start(own, archives)
        programs = ClusterPrograms(own / "admin.kubeconfig")
        yield NodeCluster(programs, _PREFIX, _TAG, cache, is_joined=True)
    finally:
        _cluster("down", "--dir", str(own), must_succeed=False)


def wait_until(read: Callable[[], ResultT], is_reached: Callable[[ResultT], bool]) -> ResultT:
    """The first reading that is as wanted."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not is_reached(reading := read()):
        assert time.monotonic() < deadline_s, f"never reached; last: {reading!r}"
        time.sleep(_LOOK_PERIOD_S)
    return reading


def _given_cluster(kubeconfig: Path) -> NodeCluster:
    prefix, _, tag = os.environ["PIPELINESERVE_TEST_IMAGES"].rpartition(":")
    cache = os.environ.get("PIPELINESERVE_TEST_MODEL_CACHE")
    folder = Path(cache) if cache else None
    return NodeCluster(ClusterPrograms(kubeconfig), prefix, tag, folder, is_joined=False)


def _built_images(archives: Path) -> list[Path]:
    """Archives of the images, built by the product's own command."""
    program_path = starter()
    if program_path is None:
        raise LookupError("no program that starts a cluster")
    isolated = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    _checked([str(program_path.parent / "base-image")], isolated, _BUILD_TIMEOUT_S)
    settings = {
        "IMAGE_TOOL": "buildah",
        "IMAGE_PREFIX": _PREFIX,
        "IMAGE_TAG": _TAG,
        "BASE_IMAGE": _BASE_IMAGE,
        "IMAGE_ARCHIVES": str(archives),
    }
    _checked(
        [sys.executable, "-m", "tools.images"], {**isolated, **settings}, _BUILD_TIMEOUT_S, cwd=ROOT
    )
    return sorted(archives.glob("*.tar"))


def _model_cache(folder: Path, model_uri: str) -> Path:
    """A cache with this model, out of the one that other tests have filled already."""
    files = resolve_model(
        model_uri, cache_dir=default_cache_dir(os.environ), progress=SilentProgress()
    )
    target = folder / "models" / files.folder.name
    shutil.copytree(files.folder, target, copy_function=_link_or_copy)
    folder.chmod(_OPEN)
    return folder


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def _start(folder: Path, archives: list[Path]) -> None:
    _cluster("up", "--dir", str(folder), "--nodes", str(_NUM_NODES))
    for archive in archives:
        _cluster("load", "--dir", str(folder), str(archive))
        archive.unlink()  # a gigabyte each


def _cluster(*arguments: str, must_succeed: bool = True) -> None:
    _checked([str(starter()), *arguments], dict(os.environ), _LOAD_TIMEOUT_S, must_succeed)


def _checked(
    command: list[str],
    environment: dict[str, str],
    timeout_s: float,
    must_succeed: bool = True,
    cwd: Path | None = None,
) -> None:
    done = subprocess.run(
        command,
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if must_succeed and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
