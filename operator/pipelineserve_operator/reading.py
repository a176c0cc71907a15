"""Reads one resource and everything that belongs to it."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pipelineserve.api import ClaimUri, PipelineServeSpec
from pipelineserve_operator.cluster import ApiError, Cluster, Kind
from pipelineserve_operator.cluster.kinds import CHILDREN
from pipelineserve_operator.observed import PodSeen, View, is_owned, pod_seen
from pipelineserve_operator.render import JsonObject, labels

# Enough to say why, and a bound on what one look costs.
_MAX_ASKED = 3
# A key is there before its pods are, so it is not asked for again while these may just be slow.
_KEY_PATIENCE_S = 10.0


async def read_view(
    cluster: Cluster, resource: JsonObject, monitors: Iterable[Kind], now_s: float
) -> View:
    """Everything but what only matters when something is amiss.

    Args:
        cluster: to ask.
        resource: as the API server has it.
        monitors: kinds for monitoring that the cluster knows.
        now_s: seconds since 1970.
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
    seen = [one for one in map(pod_seen, pods) if one is not None]
    lost = await _lost_keys(cluster, namespace, seen, now_s)
    return View(
        resource, children, tuple(replace(pod, lacks_key=pod.key_secret in lost) for pod in seen)
    )


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


async def _lost_keys(
    cluster: Cluster, namespace: str, pods: Iterable[PodSeen], now_s: float
) -> frozenset[str]:
    """Secrets with groups' keys that pods have been waiting for and that are not there.

    Secrets are not read: whether a name is free tells it.
    """
    waited_for = sorted({pod.key_secret for pod in pods if _waits_long(pod, now_s)} - {""})
    lacking = await asyncio.gather(*(_is_lost(cluster, namespace, name) for name in waited_for))
    return frozenset(name for name, lacks in zip(waited_for, lacking, strict=True) if lacks)


async def _is_lost(cluster: Cluster, namespace: str, name: str) -> bool:
    metadata = {"name": name, "namespace": namespace}
    try:
        return await cluster.lacks({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    except ApiError as error:
        if not error.is_refusal:
            raise
        return False  # a quota, or a policy of the cluster: what the pod waits for, its events say


def _waits_long(pod: PodSeen, now_s: float) -> bool:
    since_s = pod.ready_changed_s
    return pod.is_being_prepared and since_s is not None and now_s - since_s >= _KEY_PATIENCE_S


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
        if pod.is_being_prepared:
            yield pod.name, pod.uid, "FailedMount"


async def _latest(cluster: Cluster, namespace: str, uid: str, reason: str) -> str:
    fields = {"involvedObject.uid": uid, "reason": reason}
    events = await cluster.find(Kind.EVENT, namespace, fields=fields)
    latest: Any = max(events, key=_told_at, default={})
    return str(latest.get("message", ""))


def _told_at(event: JsonObject) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
