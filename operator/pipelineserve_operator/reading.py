"""Reads one resource and everything that belongs to it."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from pipelineserve.api import ClaimUri, PipelineServeSpec
from pipelineserve_operator.cluster import Cluster, Kind
from pipelineserve_operator.cluster.kinds import CHILDREN
from pipelineserve_operator.observed import PodSeen, View, is_owned, pod_seen
from pipelineserve_operator.render import JsonObject, labels

# Enough to say why, and a bound on what one look costs.
_MAX_ASKED = 3
_NOT_STARTED = frozenset({"ContainerCreating", "PodInitializing"})


async def read_view(cluster: Cluster, resource: JsonObject, monitors: Iterable[Kind]) -> View:
    """Everything but what only matters when something is amiss.

    Args:
        cluster: to ask.
        resource: as the API server has it.
        monitors: kinds for monitoring that the cluster knows.
    """
    metadata = resource["metadata"]
    namespace, uid = metadata["namespace"], metadata["uid"]
    selecting = labels.selecting_all(metadata["name"])
    kinds = (*CHILDREN, *monitors)
    *found, pods = await asyncio.gather(
        *(cluster.find(kind, namespace, labels=selecting) for kind in (*kinds, Kind.POD))
    )
    children = {
        kind: tuple(one for one in every if is_owned(one, uid))
        for kind, every in zip(kinds, found, strict=True)
    }
    seen = (pod_seen(pod) for pod in pods)
    return View(resource, children, tuple(pod for pod in seen if pod is not None))


async def read_refusals(cluster: Cluster, view: View, namespace: str) -> dict[str, str]:
    """What Kubernetes says of sets with too few pods and of pods that cannot start, by name."""
    asked = [*_short_sets(view), *_stuck_pods(view)][:_MAX_ASKED]
    answers = await asyncio.gather(
        *(_latest(cluster, namespace, uid, reason) for _, uid, reason in asked)
    )
    return {name: answer for (name, _, _), answer in zip(asked, answers, strict=True) if answer}


async def read_missing_claims(
    cluster: Cluster, spec: PipelineServeSpec, namespace: str
) -> tuple[str, ...]:
    """Claims that the resource names and that are not there."""
    names = list(dict.fromkeys(_claims(spec)))
    found = await asyncio.gather(*(cluster.get(Kind.CLAIM, namespace, name) for name in names))
    return tuple(name for name, claim in zip(names, found, strict=True) if claim is None)


def _claims(spec: PipelineServeSpec) -> Iterator[str]:
    match spec.model.source:
        case ClaimUri(claim_name, _):
            yield claim_name
        case _:
            pass  # no other source is a claim
    if spec.model.cache is not None and spec.model.cache.claim_name is not None:
        yield spec.model.cache.claim_name


def _short_sets(view: View) -> Iterator[tuple[str, str, str]]:
    for one in view.sets:
        if one.num_pods < one.num_pods_wanted:
            yield one.name, one.uid, "FailedCreate"


def _stuck_pods(view: View) -> Iterator[tuple[str, str, str]]:
    for pod in view.pods:
        if pod.node and not pod.is_gone_soon and _has_not_started(pod):
            yield pod.name, pod.uid, "FailedMount"


def _has_not_started(pod: PodSeen) -> bool:
    return bool(pod.containers) and all(
        one.waiting_reason in _NOT_STARTED for one in pod.containers
    )


async def _latest(cluster: Cluster, namespace: str, uid: str, reason: str) -> str:
    fields = {"involvedObject.uid": uid, "reason": reason}
    events = await cluster.find(Kind.EVENT, namespace, fields=fields)
    latest: Any = max(events, key=_told_at, default={})
    return str(latest.get("message", ""))


def _told_at(event: JsonObject) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
