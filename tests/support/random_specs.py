"""Random specs on Torch that are valid, in two halves: what rolls, and what is live."""

import itertools
from typing import Any

from hypothesis import strategies as st

Spec = dict[str, Any]

_WORD = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
_LABELS = st.dictionaries(_WORD.map("example.com/{}".format), _WORD, max_size=3)
_QUANTITY = st.sampled_from(["1", "500m", "2Gi", "1.5Gi", "250M", "1e3", "0"])
_MODELS = st.sampled_from(
    [
        "hf://org/model",
        "pypi://dist/folder/a.gguf",
        "pvc://claim/path/model",
        "pvc://claim",
        "pvc://claim/a.gguf",
        "file:///models/a$(HOME)",
        "file:///models/a.GGUF",
    ]
)


def optional(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Spec]:
    """A mapping with any of these keys."""
    return st.fixed_dictionaries({}, optional=strategies)


@st.composite
def _models(draw: st.DrawFn) -> Spec:
    uri = draw(_MODELS)
    revision = {"revision": _WORD} if uri.startswith(("hf", "pypi")) else {}
    cache = st.sampled_from([{"claimName": "weights"}, {"sizeLimit": "4Gi"}])
    more = optional(
        servedName=_WORD,
        maxContextTokens=st.integers(1, 9999),
        dtype=st.sampled_from(["Auto", "Float32", "Float16", "BFloat16"]),
        tokenSecretRef=st.just({"name": "hub", "key": "token"}),
        cache=cache,
        **revision,
    )
    return {"uri": uri, **draw(more)}


@st.composite
def _parallelisms(draw: st.DrawFn) -> Spec:
    per_pod, num_pods = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    stages = per_pod * num_pods
    layers: Spec = {}
    if draw(st.booleans()):
        counts = draw(st.lists(st.integers(1, 9), min_size=stages, max_size=stages))
        layers = {"layers": {"mode": "Manual", "perStage": counts}}
    return {"stages": stages, "stagesPerPod": per_pod, **layers}


_VARIABLES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"name": _WORD, "value": st.text(max_size=9)}),
        st.fixed_dictionaries(
            {
                "name": _WORD,
                "valueFrom": st.just({"secretKeyRef": {"name": "secret", "key": "key"}}),
            }
        ),
    ),
    max_size=3,
    unique_by=lambda entry: str(entry["name"]),
)
_COMPUTE = st.dictionaries(st.sampled_from(["cpu", "memory"]), _QUANTITY, max_size=2)
_TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
_SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
}

ROLLING: st.SearchStrategy[Spec] = st.fixed_dictionaries(
    {
        "model": _models(),
        "engine": optional(
            image=st.just("example.com/own/engine:2"),
            args=st.lists(st.sampled_from(["--kv-tokens=640", "--extra-slots=1"]), max_size=2),
            env=_VARIABLES,
            maxChunkTokens=st.integers(4096, 8192),
        ).map(lambda engine: {"type": "Torch", **engine}),
        "parallelism": _parallelisms(),
    },
    optional={
        "restartTime": st.sampled_from(["2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"]),
        "api": st.just({"keySecretRef": {"name": "keys", "key": "apiKey"}}),
        "resources": optional(
            stage=optional(requests=_COMPUTE, limits=_COMPUTE, sharedMemory=_QUANTITY),
            controller=optional(requests=_COMPUTE, limits=_COMPUTE),
            deviceResourceName=st.just("example.com/device"),
        ),
        "placement": optional(
            nodeSelector=_LABELS,
            tolerations=st.just([_TOLERATION]),
            affinity=st.just({"nodeAffinity": {}}),
            topologySpread=st.just([_SPREAD]),
            runtimeClassName=st.just("sandboxed"),
            priorityClassName=st.just("urgent"),
            schedulerName=st.just("volcano"),
            imagePullSecrets=st.just([{"name": "registry"}]),
        ),
        "podMetadata": optional(labels=_LABELS, annotations=_LABELS),
    },
)
_TARGET = st.fixed_dictionaries(
    {"milliseconds": st.integers(1, 9999)}, optional={"percentile": st.integers(50, 99)}
)


@st.composite
def _chunkings(draw: st.DrawFn) -> Spec:
    sizes = sorted(draw(st.lists(st.integers(1, 4096), min_size=3, max_size=3)))
    named = dict(zip(("minTokens", "staticTokens", "maxTokens"), sizes, strict=True))
    kept = draw(st.sets(st.sampled_from(sorted(named))))
    policy = draw(st.sampled_from(["Static", "Greedy", "Predictive"]))
    return {"policy": policy, **{name: named[name] for name in sorted(kept)}}


LIVE: st.SearchStrategy[Spec] = st.fixed_dictionaries(
    {"slo": st.one_of(*(
        st.fixed_dictionaries(dict.fromkeys(names, _TARGET), optional={
            "windowSeconds": st.integers(10, 9999)
        })
        for names in itertools.chain(
            itertools.combinations(("ttft", "tpot"), 1), [("ttft", "tpot")]
        )
    ))},
    optional={
        "replicas": st.integers(0, 3),
        "chunking": _chunkings(),
        "rebalancing": optional(
            mode=st.sampled_from(["Off", "TpotFirst", "E2eFirst", "Auto"]),
            maxGapMilliseconds=st.integers(1, 9999),
        ),
        "queueing": optional(
            order=st.sampled_from(["Arrival", "Ageing", "Triage"]),
            lateSharePercent=st.integers(0, 100),
        ),
        "control": optional(
            mode=st.sampled_from(["Active", "Advisory", "Paused"]),
            leaseSeconds=st.integers(1, 300),
            staleSeconds=st.integers(1, 3600),
        ),
        "rollout": optional(
            maxSurge=st.integers(0, 2),
            maxUnavailable=st.integers(1, 2),
            startupDeadlineSeconds=st.integers(10, 9999),
        ),
        "recovery": optional(
            maxRestarts=st.integers(0, 9),
            windowSeconds=st.integers(60, 9999),
            nodeLostSeconds=st.integers(10, 9999),
        ),
        "networkPolicy": optional(
            ingressFrom=st.sampled_from([[], [{"podSelector": {"matchLabels": {"a": "b"}}}]])
        ),
        "autoscaling": st.just({"minReplicas": 1, "maxReplicas": 3}),
        "monitoring": optional(
            enabled=st.booleans(), interval=st.sampled_from(["15s", "1m", "500ms"]), labels=_LABELS
        ),
    },
)  # fmt: skip
