"""Rules between fields, one table: each has a name, the fields that it needs, and a message.

They work on the JSON document, as the CRD's validation rules will, so that they can be checked
although other fields of the same resource are malformed.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from pipelineserve.api.lifecycle import RolloutSpec
from pipelineserve.api.model_uris import ClaimUri, FileUri, parse_model_uri
from pipelineserve.api.paths import join, overlap, shortened
from pipelineserve.errors import Fault

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Rule:
    """One relation between fields.

    Attributes:
        name: stable and unique; tests and the CRD refer to it.
        scope: path of the mapping that the other paths are relative to; `[*]` stands for each item.
        reported_at: the field that a fault names, relative to `scope`.
        needs: the fields whose values `holds` gets, in this order; None for one not given.
        cel: the same as an expression of the CRD, on the mapping as `self`; fields with a default
            in the schema are always there.
        expected: completes "expected ..."; `remedy` says what to do next.
        defaults: values for needed fields that are not given.
        by_presence: a fault then tells which fields are there, not their values.
        is_list_key: entries of a list must differ in `name`, which a schema says without CEL.
    """

    name: str
    scope: str
    reported_at: str
    needs: tuple[str, ...]
    holds: Callable[..., bool]
    cel: str
    expected: str
    remedy: str
    defaults: Mapping[str, int] = field(default_factory=dict)
    by_presence: bool = False
    is_list_key: bool = False

    @property
    def message(self) -> str:
        """What the rule demands, without the values of a case."""
        return f"expected {self.expected}; {self.remedy}"


def _ascending(lower: str, upper: str, between: tuple[str, ...]) -> Rule:
    """`lower` <= `upper`; left to the neighbours' rules when a size between them is given."""
    low, high = _leaf(lower), _leaf(upper)
    return Rule(
        name=f"{_capitalised(low)}AtMost{_capitalised(high)}",
        scope="spec",
        reported_at=lower,
        needs=(lower, upper, *between),
        holds=lambda a, b, *given: (
            a is None or b is None or a <= b or any(size is not None for size in given)
        ),
        cel=" || ".join(
            (
                f"!has(self.{lower})",
                f"!has(self.{upper})",
                *(f"has(self.{size})" for size in between),
                f"self.{lower} <= self.{upper}",
            )
        ),
        expected=f"at most spec.{upper}",
        remedy=f"lower {low} or raise {high}",
    )


def _exactly_one(name: str, scope: str, one: str, other: str) -> Rule:
    return Rule(
        name=name,
        scope=scope,
        reported_at="",
        needs=(one, other),
        holds=lambda a, b: (a is None) != (b is None),
        cel=f"has(self.{one}) != has(self.{other})",
        expected=f"exactly one of {one} and {other}",
        remedy="keep the one that you mean",
        by_presence=True,
    )


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


def _capitalised(name: str) -> str:
    return name[:1].upper() + name[1:]


# Smallest to largest; the step is no size of its own and is only held against the upper two.
_SIZES = (
    "chunking.minTokens",
    "chunking.staticTokens",
    "chunking.maxTokens",
    "engine.maxChunkTokens",
)
_UPPER_SIZES = _SIZES[2:]


def _revision_has_meaning(uri: str, revision: str | None) -> bool:
    return revision is None or not isinstance(parse_model_uri(uri), ClaimUri | FileUri)


def _names_are_unique(env: list[dict[str, Any]] | None) -> bool:
    names = [entry.get("name") for entry in env or []]
    return len(names) == len(set(names))


RULES: tuple[Rule, ...] = (
    Rule(
        name="StagesPerPodDividesStages",
        scope="spec.parallelism",
        reported_at="stagesPerPod",
        needs=("stages", "stagesPerPod"),
        holds=lambda stages, per_pod: per_pod is None or stages % per_pod == 0,
        cel="!has(self.stagesPerPod) || self.stages % self.stagesPerPod == 0",
        expected="a divisor of stages",
        remedy="every pod of a replica holds the same number of stages",
    ),
    Rule(
        name="PerStageWithManualOnly",
        scope="spec.parallelism.layers",
        reported_at="perStage",
        needs=("mode", "perStage"),
        holds=lambda mode, per_stage: (mode == "Manual") == (per_stage is not None),
        cel="(self.mode == 'Manual') == has(self.perStage)",
        expected="perStage with mode Manual, and only then",
        remedy="give perStage and mode Manual, or neither",
    ),
    Rule(
        name="PerStageAsLongAsStages",
        scope="spec.parallelism",
        reported_at="layers.perStage",
        needs=("stages", "layers.perStage"),
        holds=lambda stages, per_stage: per_stage is None or len(per_stage) == stages,
        cel="!has(self.layers.perStage) || size(self.layers.perStage) == self.stages",
        expected="as many entries as stages",
        remedy="give the number of layers of each stage",
    ),
    Rule(
        name="TorchWithoutTensorParallel",
        scope="spec",
        reported_at="parallelism.tensorParallel",
        needs=("engine.type", "parallelism.tensorParallel"),
        holds=lambda engine, devices: engine != "Torch" or devices is None or devices == 1,
        cel="self.engine.type != 'Torch' || self.parallelism.tensorParallel == 1",
        expected="1 with engine Torch, which does not split tensors",
        remedy="raise stages instead, or use engine SGLang",
    ),
    *(
        _ascending(lower, upper, _SIZES[_SIZES.index(lower) + 1 : _SIZES.index(upper)])
        for lower, upper in combinations(_SIZES, 2)
    ),
    *(
        _ascending("chunking.stepTokens", upper, _UPPER_SIZES[: _UPPER_SIZES.index(upper)])
        for upper in _UPPER_SIZES
    ),
    Rule(
        name="AtLeastOneTarget",
        scope="spec.slo",
        reported_at="",
        needs=("ttft", "tpot"),
        holds=lambda ttft, tpot: ttft is not None or tpot is not None,
        cel="has(self.ttft) || has(self.tpot)",
        expected="at least one of ttft and tpot",
        remedy="give the latency that must hold, e.g. ttft: {milliseconds: 2000}",
        by_presence=True,
    ),
    _exactly_one("OneKindOfCache", "spec.model.cache", "claimName", "sizeLimit"),
    _exactly_one("OneSourceOfVariable", "spec.engine.env[*]", "value", "valueFrom"),
    Rule(
        name="VariableNamesUnique",
        scope="spec.engine",
        reported_at="env",
        needs=("env",),
        holds=_names_are_unique,
        cel="",
        is_list_key=True,
        expected="every variable once",
        remedy="remove all but one of those with the same name",
        by_presence=True,
    ),
    Rule(
        name="RevisionOfVersionedSource",
        scope="spec.model",
        reported_at="revision",
        needs=("uri", "revision"),
        holds=_revision_has_meaning,
        cel="!has(self.revision) || !self.uri.matches('^(pvc|file)://')",
        expected="no revision with a pvc:// or file:// model, whose files have none",
        remedy="remove it, or use an hf:// or pypi:// model",
    ),
    Rule(
        name="RolloutCanProceed",
        scope="spec.rollout",
        reported_at="maxUnavailable",
        needs=("maxSurge", "maxUnavailable"),
        holds=lambda surge, unavailable: surge + unavailable > 0,
        cel="self.maxSurge + self.maxUnavailable > 0",
        expected="at least 1 while maxSurge is 0",
        remedy="a rollout must add or remove a replica: raise one of the two",
        defaults={
            "maxSurge": RolloutSpec().max_surge,
            "maxUnavailable": RolloutSpec().max_unavailable,
        },
    ),
    Rule(
        name="MinReplicasAtMostMaxReplicas",
        scope="spec.autoscaling",
        reported_at="minReplicas",
        needs=("minReplicas", "maxReplicas"),
        holds=lambda least, most: least is None or least <= most,
        cel="self.minReplicas <= self.maxReplicas",
        expected="at most maxReplicas",
        remedy="lower minReplicas or raise maxReplicas",
    ),
)


def broken_rules(document: Mapping[str, Any], malformed: Collection[str] = ()) -> tuple[Fault, ...]:
    """A fault for each rule that `document` breaks.

    `malformed` are the paths of fields not to be looked at; a rule that needs one is skipped.
    """
    return tuple(
        _fault(rule, scope, values)
        for rule in RULES
        for scope, mapping in _scopes(document, rule.scope)
        if not _is_malformed(rule, scope, malformed)
        for values in [_needed(rule, mapping)]
        if not rule.holds(*values.values())
    )


def _is_malformed(rule: Rule, scope: str, malformed: Collection[str]) -> bool:
    return any(overlap(f"{scope}.{need}", path) for need in rule.needs for path in malformed)


def _needed(rule: Rule, mapping: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for need in rule.needs:
        value = _value(mapping, need)
        values[need] = rule.defaults.get(need) if value is None else value
    return values


def _value(mapping: Mapping[str, Any], path: str) -> Any:
    value: Any = mapping
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _scopes(document: Mapping[str, Any], scope: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every mapping at `scope` with its path; none where the document has another shape."""
    head, star, _ = scope.partition("[*]")
    found = _value(document, head)
    candidates = [(scope, found)]
    if star:
        items = found if isinstance(found, list | tuple) else []
        candidates = [(join(head, index), item) for index, item in enumerate(items)]
    yield from ((path, value) for path, value in candidates if isinstance(value, Mapping))


def _fault(rule: Rule, scope: str, values: Mapping[str, Any]) -> Fault:
    got = ", ".join(_got(_leaf(need), value, rule) for need, value in values.items())
    path = f"{scope}.{rule.reported_at}" if rule.reported_at else scope
    return Fault(path, f"expected {rule.expected}, got {got}; {rule.remedy}")


def _got(name: str, value: Any, rule: Rule) -> str:
    if value is None:
        return f"no {name}"
    shown = shortened(json.dumps(value), _SHOWN_CHARACTERS)
    return name if rule.by_presence else f"{name} {shown}"
