"""The catalogue's metrics as prometheus objects on a registry of the caller's."""

from collections.abc import Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from pipelineserve.metrics import CATALOGUE, Metric, MetricKind


class Telemetry:
    """One object per entry of the catalogue, found by that entry: `counter(metrics.REQUESTS)`.

    Asking for an entry as another kind than its own is a KeyError, at the first use.
    """

    def __init__(
        self, registry: CollectorRegistry, catalogue: Iterable[Metric] = CATALOGUE
    ) -> None:
        # Its switch is global; without it every counter and histogram adds a series of its own
        # (`_created`), which the catalogue does not know.
        disable_created_metrics()  # type: ignore[no-untyped-call] # the library left it untyped
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in catalogue:
            self._add(metric, registry)

    def counter(self, metric: Metric) -> Counter:
        """The counter of a catalogue entry."""
        return self._counters[metric.name]

    def gauge(self, metric: Metric) -> Gauge:
        """The gauge of a catalogue entry."""
        return self._gauges[metric.name]

    def histogram(self, metric: Metric) -> Histogram:
        """The histogram of a catalogue entry."""
        return self._histograms[metric.name]

    def _add(self, metric: Metric, registry: CollectorRegistry) -> None:
        name, text, labels = metric.name, metric.help, metric.labels
        match metric.kind:
            case MetricKind.COUNTER:
                self._counters[name] = Counter(name, text, labels, registry=registry)
            case MetricKind.GAUGE:
                # The mode matters only where several processes share their metrics, as SGLang's do.
                self._gauges[name] = Gauge(
                    name, text, labels, registry=registry, multiprocess_mode="mostrecent"
                )
            case MetricKind.HISTOGRAM:
                self._histograms[name] = Histogram(
                    name, text, labels, registry=registry, buckets=metric.buckets
                )


def unread_telemetry() -> Telemetry:
    """One that nobody reads, for an engine that is no server."""
    return Telemetry(CollectorRegistry())
