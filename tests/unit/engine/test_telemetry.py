"""The exported metrics are the catalogue's, no more and no fewer."""

import re
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pipelineserve import metrics
from pipelineserve.metrics import CATALOGUE, Metric, MetricKind
from pipelineserve_engine.telemetry import Telemetry


def _use_once(telemetry: Telemetry, metric: Metric) -> None:
    labels = dict.fromkeys(metric.labels, "0")
    match metric.kind:
        case MetricKind.COUNTER:
            counter = telemetry.counter(metric)
            (counter.labels(**labels) if labels else counter).inc()
        case MetricKind.GAUGE:
            gauge = telemetry.gauge(metric)
            (gauge.labels(**labels) if labels else gauge).set(1)
        case MetricKind.HISTOGRAM:
            histogram = telemetry.histogram(metric)
            (histogram.labels(**labels) if labels else histogram).observe(1)


def _series_names(metric: Metric) -> set[str]:
    if metric.kind is MetricKind.HISTOGRAM:
        return {f"{metric.name}_{part}" for part in ("bucket", "count", "sum")}
    return {metric.name}


def _exported() -> tuple[str, set[str]]:
    registry = CollectorRegistry()
    telemetry = Telemetry(registry)
    for metric in CATALOGUE:
        _use_once(telemetry, metric)
    text = generate_latest(registry).decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return text, {sample.name for sample in samples}


def test_every_entry_is_exported_and_nothing_else() -> None:
    _, names = _exported()
    assert names == set().union(*map(_series_names, CATALOGUE))


def test_names_are_valid_for_prometheus() -> None:
    _, names = _exported()
    assert all(re.fullmatch(r"pipelineserve_[a-z0-9_]+", name) for name in names)


def test_help_kind_and_buckets_are_the_catalogues() -> None:
    text, _ = _exported()
    assert f"# HELP {metrics.TTFT.name} {metrics.TTFT.help}" in text
    assert f"# TYPE {metrics.KV_USED.name} gauge" in text
    bounds = re.findall(rf'{metrics.TTFT.name}_bucket{{le="([^"]+)"}}', text)
    assert [float(bound) for bound in bounds[:-1]] == list(metrics.TTFT.buckets)
    assert bounds[-1] == "+Inf"


def test_an_entry_asked_for_as_another_kind_is_an_error() -> None:
    telemetry = Telemetry(CollectorRegistry())
    with pytest.raises(KeyError):
        telemetry.counter(metrics.TTFT)


def test_latency_buckets_reach_from_a_millisecond_to_minutes() -> None:
    latencies = [m for m in CATALOGUE if m.kind is MetricKind.HISTOGRAM and "seconds" in m.name]
    assert {metrics.TTFT, metrics.TPOT, metrics.TOKEN_GAP, metrics.E2E} <= set(latencies)
    for metric in latencies:
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert metric.buckets[0] <= 0.001
        assert metric.buckets[-1] >= 300
        # Else a percentile between two bounds would say little.
        assert all(high <= 3 * low for low, high in pairwise(metric.buckets))
