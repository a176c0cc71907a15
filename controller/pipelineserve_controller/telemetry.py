"""The sidecar's state as Prometheus series, made anew for each reading."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pipelineserve import metrics
from pipelineserve.metrics import Metric, MetricKind
from pipelineserve.policy.control.answers import Answer
from pipelineserve_controller.loop import ControlLoop
from pipelineserve_controller.state import LatencyState, SidecarState

Family = GaugeMetricFamily | CounterMetricFamily
_Series = tuple[tuple[str, ...], float | None]


class StateCollector(Collector):
    """Reads the loop when Prometheus reads the sidecar; what is not known has no series."""

    def __init__(self, loop: ControlLoop, num_journal_lost: Callable[[], int]) -> None:
        self._loop = loop
        self._num_journal_lost = num_journal_lost

    def collect(self) -> Iterator[Family]:
        """One family for each entry of the controller's catalogue."""
        series = {**state_series(self._loop.state), **self._counts()}
        for metric in metrics.CONTROLLER_CATALOGUE:
            yield _family(metric, series[metric.name])

    def _counts(self) -> dict[str, list[_Series]]:
        loop = self._loop
        return {
            metrics.CONTROL_TURNS.name: [((), loop.num_turns)],
            metrics.POLICIES_SENT.name: [
                (("applied",), loop.num_applied),
                (("failed",), loop.num_failed),
            ],
            metrics.JOURNAL_LOST.name: [((), self._num_journal_lost())],
        }


def state_series(state: SidecarState) -> dict[str, list[_Series]]:
    """Labels and value of each series that tells of the state; None: not known."""
    attainment = state.slo.attainment_ratio
    return {
        metrics.CONTROL_LATENCY.name: [
            ((name, quantile), value)
            for name, latency in (("ttft", state.ttft), ("tpot", state.tpot))
            for quantile, value in _quantiles(latency)
        ],
        metrics.CONTROL_TARGET.name: [
            (("ttft",), state.ttft.target_s),
            (("tpot",), state.tpot.target_s),
        ],
        metrics.SLO_MET.name: [((), _number(state.slo.met))],
        metrics.SLO_FEASIBLE.name: [((), _number(state.slo.feasible))],
        metrics.SLO_ATTAINMENT.name: [((), attainment)],
        metrics.ENGINE_CONNECTED.name: [((), float(state.connection.is_connected))],
        metrics.CONTROL_EFFECTIVE.name: [((), float(state.control.is_effective))],
        metrics.INPUT_FRESH.name: [((state.freshness.reason,), float(state.freshness.is_fresh))],
        metrics.INPUT_DIFFERENCES.name: [((), float(state.freshness.num_differences))],
        metrics.OBJECTIVES_GENERATION.name: [((), float(state.control.generation))],
        metrics.MODEL_FEEDBACK.name: [((), state.model.feedback_ratio)],
        metrics.MODEL_SPREAD.name: [((), state.model.spread_ratio)],
    }


def _quantiles(latency: LatencyState) -> list[tuple[str, float | None]]:
    return [("0.5", latency.p50_s), ("0.9", latency.p90_s), ("0.99", latency.p99_s)]


def _number(answer: Answer) -> float | None:
    match answer:
        case Answer.YES:
            return 1.0
        case Answer.NO:
            return 0.0
        case Answer.UNKNOWN:
            return None


def _family(metric: Metric, series: list[_Series]) -> Family:
    is_counter = metric.kind is MetricKind.COUNTER
    kind = CounterMetricFamily if is_counter else GaugeMetricFamily
    family: Family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in series:
        if value is not None:
            family.add_metric(labels, value)
    return family
