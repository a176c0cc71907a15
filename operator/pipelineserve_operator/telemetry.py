"""The operator's own figures as Prometheus series, made anew for each reading."""

import resource
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pipelineserve import metrics
from pipelineserve.metrics import Metric, MetricKind
from pipelineserve_operator.attend import Refusal

_STATM = Path("/proc/self/statm")


class Outcome(Enum):
    """How a look at a resource ended."""

    DONE = "done"
    BLOCKED = "blocked"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Gauges:
    """What is read when somebody asks; None: not known."""

    num_due: Callable[[], int]
    num_resources: Callable[[], int]
    num_writes: Callable[[], int]
    num_requests: Callable[[], int]
    num_events_dropped: Callable[[], int]
    leads: Callable[[], bool]
    watch_age_s: Callable[[], float | None]
    num_sidecars: Callable[[], int]
    refusals: Callable[[], Mapping[Refusal, int]]


class Telemetry(Collector):
    """Counts looks, and reads the rest when Prometheus does."""

    def __init__(self, gauges: Gauges, version: str) -> None:
        self.registry = CollectorRegistry()
        self._gauges = gauges
        self._version = version
        self._outcomes: Counter[Outcome] = Counter()
        timed = metrics.OPERATOR_RECONCILE_TIME
        self._times = Histogram(
            timed.name, timed.help, buckets=timed.buckets, registry=self.registry
        )
        self.registry.register(self)

    def looked(self, outcome: Outcome, span_s: float) -> None:
        """A look has ended after so long."""
        self._outcomes[outcome] += 1
        self._times.observe(span_s)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """One family for each entry of the catalogue but the histogram, which is its own."""
        series = self._series()
        for metric in metrics.OPERATOR_CATALOGUE:
            if metric.kind is not MetricKind.HISTOGRAM:
                yield _family(metric, series[metric.name])

    def _series(self) -> dict[str, dict[tuple[str, ...], float | None]]:
        gauges = self._gauges
        return {
            metrics.OPERATOR_RECONCILES.name: {
                (outcome.value,): float(self._outcomes[outcome]) for outcome in Outcome
            },
            metrics.OPERATOR_WRITES.name: {(): float(gauges.num_writes())},
            metrics.OPERATOR_REQUESTS.name: {(): float(gauges.num_requests())},
            metrics.OPERATOR_EVENTS_DROPPED.name: {(): float(gauges.num_events_dropped())},
            metrics.OPERATOR_QUEUE.name: {(): float(gauges.num_due())},
            metrics.OPERATOR_RESOURCES.name: {(): float(gauges.num_resources())},
            metrics.OPERATOR_LEADS.name: {(): float(gauges.leads())},
            metrics.OPERATOR_SIDECARS.name: {(): float(gauges.num_sidecars())},
            metrics.OPERATOR_REFUSALS.name: {
                (refusal.value,): float(num) for refusal, num in gauges.refusals().items()
            },
            metrics.OPERATOR_WATCH_AGE.name: {(): gauges.watch_age_s()},
            metrics.OPERATOR_MEMORY.name: {(): _resident_bytes()},
            metrics.OPERATOR_BUILD.name: {(self._version,): 1.0},
        }


def _family(
    metric: Metric, series: dict[tuple[str, ...], float | None]
) -> CounterMetricFamily | GaugeMetricFamily:
    is_counter = metric.kind is MetricKind.COUNTER
    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = kind(
        metric.name, metric.help, labels=metric.labels
    )
    for labels, value in series.items():
        if value is not None:
            family.add_metric(labels, value)
    return family


def _resident_bytes() -> float | None:
    """Where the system tells; None elsewhere."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return float(pages * resource.getpagesize())
