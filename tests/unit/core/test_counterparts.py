"""SGLang's metrics under our names: one table, of the same kinds and units."""

import pytest

from pipelineserve import metrics
from pipelineserve.counterparts import OF_SGLANG, our_series
from pipelineserve.metrics import MetricKind

UNITS = ("_seconds", "_ratio", "_tokens_total")


def test_each_metric_of_ours_has_one_counterpart_at_most_and_is_in_the_catalogue() -> None:
    ours = [counterpart.metric for counterpart in OF_SGLANG]
    assert len(set(ours)) == len(ours)
    assert set(ours) <= set(metrics.CATALOGUE)
    assert not any(metric.labels for metric in ours)


def test_histograms_and_counters_end_alike_on_both_sides() -> None:
    for counterpart in OF_SGLANG:
        name, family = counterpart.metric.name, counterpart.family
        ends = [end for end in UNITS if name.endswith(end)]
        if counterpart.metric.kind is not MetricKind.GAUGE:
            assert ends
            assert family.endswith(ends[0]), family


def test_a_histogram_has_three_series_and_anything_else_one() -> None:
    numbers = {one.metric.kind: len(one.series) for one in OF_SGLANG}
    assert numbers == {MetricKind.HISTOGRAM: 3, MetricKind.COUNTER: 1, MetricKind.GAUGE: 1}
    sum_of = our_series("sglang:time_to_first_token_seconds_sum", {"is_streaming": "true"})
    assert sum_of == "pipelineserve_ttft_seconds_sum"


@pytest.mark.parametrize(
    ("labels", "counts"),
    [
        ({"pp_rank": "0", "tp_rank": "0"}, True),
        ({"pp_rank": "0", "tp_rank": "0", "priority": ""}, True),
        ({"pp_rank": "1", "tp_rank": "0"}, False),
        ({"pp_rank": "0", "tp_rank": "1"}, False),
        ({"pp_rank": "0", "tp_rank": "0", "priority": "2"}, False),
    ],
)
def test_of_what_every_rank_tells_the_first_one_s_total_counts(
    labels: dict[str, str], *, counts: bool
) -> None:
    found = our_series("sglang:num_queue_reqs", labels)
    assert found == (metrics.REQUESTS_WAITING.name if counts else None)


def test_what_has_no_counterpart_has_no_name_of_ours() -> None:
    for name in ("sglang:num_requests_total", "sglang:num_running_reqs", "up"):
        assert our_series(name, {"pp_rank": "0", "tp_rank": "0"}) is None
