"""Expressions of alerts as Prometheus reads them, and what of the product they are about."""

from collections.abc import Iterable
from typing import NamedTuple

from promql_parser import Expr, MatrixSelector, VectorSelector, parse, walk

from pipelineserve.metrics import Metric, MetricKind

# Of every series that a PodMonitor's target has, whichever the metric.
TARGET_LABELS = frozenset({"namespace", "pipelineserve_dev_name"})


class Selected(NamedTuple):
    """The series that an expression is about: a name, and the labels that it asks for."""

    name: str
    labels: frozenset[str]


def selected(expression: str) -> set[Selected]:
    """All selections in an expression.

    Raises:
        ValueError: Prometheus would not take it, or names no metric.
    """
    found = set()

    def look(part: Expr) -> None:
        if isinstance(part, VectorSelector):
            found.add(_of(part))
        elif isinstance(part, MatrixSelector):
            found.add(_of(part.vector_selector))

    walk(parse(expression), look)
    return found


def known(catalogue: Iterable[Metric]) -> dict[str, frozenset[str]]:
    """Every series of these metrics with the labels that it may be asked for."""
    series = {}
    for metric in catalogue:
        labels = TARGET_LABELS | set(metric.labels)
        if metric.kind is MetricKind.HISTOGRAM:
            series[f"{metric.name}_bucket"] = labels | {"le"}
            series[f"{metric.name}_sum"] = series[f"{metric.name}_count"] = labels
        else:
            series[metric.name] = labels
    return series


def _of(selector: VectorSelector) -> Selected:
    if not selector.name:
        raise ValueError(f"expected a metric's name, got {selector}")
    return Selected(selector.name, frozenset(one.name for one in selector.matchers.matchers))
