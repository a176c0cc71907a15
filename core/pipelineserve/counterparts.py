"""Metrics of SGLang that say what ones of the catalogue do, in the same unit.

One table, read wherever an engine's metrics are: by the controller's cross-check, and by the
recording rules that give SGLang's series our names. What is not in it has no counterpart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelineserve import metrics
from pipelineserve.metrics import Metric, MetricKind

# SGLang writes its gauges when it logs a micro-batch, and without any at least this often.
REFRESH_S = 30.0
# Each stage tells of its own copy of the same queue and KV pool; an empty priority is the total.
_FIRST_RANK = (("pp_rank", "0"), ("tp_rank", "0"), ("priority", ""))
_HISTOGRAM_ENDS = ("_bucket", "_sum", "_count")


@dataclass(frozen=True, slots=True)
class Counterpart:
    """A family of SGLang's.

    Attributes:
        metric: ours, of the same kind.
        family: its name there.
        labels: what a series must have to count, in addition to any others; as in Prometheus a
            label that is not there is empty. All series that count add up to ours.
    """

    metric: Metric
    family: str
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def series(self) -> tuple[tuple[str, str], ...]:
        """Names of series, ours and SGLang's: three for a histogram, one for anything else."""
        ends = _HISTOGRAM_ENDS if self.metric.kind is MetricKind.HISTOGRAM else ("",)
        return tuple((f"{self.metric.name}{end}", f"{self.family}{end}") for end in ends)

    def counts(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is among those that add up to ours."""
        return all(labels.get(name, "") == value for name, value in self.labels)


OF_SGLANG: tuple[Counterpart, ...] = (
    Counterpart(metrics.TTFT, "sglang:time_to_first_token_seconds"),
    Counterpart(metrics.TPOT, "sglang:request_time_per_output_token_seconds"),
    Counterpart(metrics.TOKEN_GAP, "sglang:inter_token_latency_seconds"),
    Counterpart(metrics.E2E, "sglang:e2e_request_latency_seconds"),
    Counterpart(metrics.QUEUE_WAIT, "sglang:queue_time_seconds", _FIRST_RANK),
    Counterpart(metrics.REQUESTS_WAITING, "sglang:num_queue_reqs", _FIRST_RANK),
    Counterpart(metrics.PROMPT_TOKENS, "sglang:prompt_tokens_total"),
    Counterpart(metrics.CACHED_TOKENS, "sglang:cached_tokens_total"),
    Counterpart(metrics.OUTPUT_TOKENS, "sglang:generation_tokens_total"),
    Counterpart(metrics.KV_USED, "sglang:token_usage", _FIRST_RANK),
)

_BY_SERIES = {
    theirs: (ours, counterpart) for counterpart in OF_SGLANG for ours, theirs in counterpart.series
}


def our_series(name: str, labels: Mapping[str, str]) -> str | None:
    """Our name of a series of SGLang's; None if it has no counterpart or does not count."""
    found = _BY_SERIES.get(name)
    if found is None:
        return None
    ours, counterpart = found
    return ours if counterpart.counts(labels) else None
