"""The scheduler under our greedy law, which in the product a controller asks from outside."""

from collections import deque
from collections.abc import Iterable
from math import ceil

from pipelineserve.policy.admission import KnownLengths
from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.greedy import Greedy, LatencyView
from pipelineserve.policy.ordering import QueueOrder
from pipelineserve.policy.views import LoadView
from pipelineserve.scheduler.messages import Emission, StepResult
from pipelineserve.scheduler.requests import Request
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings

PERIOD_S = 1.0
"""Between two decisions, as in the product: a step shows in what is measured only after a while."""
WINDOW_S = 10.0
"""Time over which latencies are counted."""
PERCENTILE = 90
"""Of latencies, as the targets are set."""


class GreedyScheduler(Scheduler):
    """Measures latencies as a controller does and lets the law set the chunk once a second.

    Args:
        settings: sizes.
        law: with its targets.
        order: of the waiting queue.
        admission: looks ahead by known output lengths, if it does.
    """

    def __init__(
        self,
        settings: SchedulerSettings,
        law: Greedy,
        order: QueueOrder,
        admission: KnownLengths | None,
    ) -> None:
        super().__init__(settings, self, order, admission=admission)
        self._law = law
        self._memory = law.start()
        self._latest: ChunkDecision | None = None
        self._decided_at_s = 0.0
        # When it was measured, and the seconds.
        self._ttfts_s: deque[tuple[float, float]] = deque()
        self._tpots_s: deque[tuple[float, float]] = deque()

    def decide(self, view: LoadView) -> ChunkDecision:
        """The chunk of the micro-batch being composed; see `ChunkPolicy`."""
        if self._latest is None or view.now_s - self._decided_at_s >= PERIOD_S:
            self._decided_at_s = view.now_s
            self._latest, self._memory = self._law.decide(self._memory, self._seen(view))
        return self._latest

    def complete(self, slot_index: int, result: StepResult, now_s: float) -> list[Emission]:
        """See `Scheduler.complete`."""
        emissions = super().complete(slot_index, result, now_s)
        for emission in emissions:
            if emission.ttft_s is not None:
                self._ttfts_s.append((now_s, emission.ttft_s))
            if emission.record is not None and emission.record.tpot_s is not None:
                self._tpots_s.append((now_s, emission.record.tpot_s))
        return emissions

    def _seen(self, view: LoadView) -> LatencyView:
        now_s = view.now_s
        for samples in (self._ttfts_s, self._tpots_s):
            while samples and samples[0][0] <= now_s - WINDOW_S:
                samples.popleft()
        running = [
            tpot for r in self._live.values() if (tpot := _tpot_so_far(r, now_s)) is not None
        ]
        waits_s = [now_s - r.arrival_s for r in self._live.values() if r.first_token_s is None]
        in_flight = [micro_batch.num_decodes for micro_batch, _ in self._in_flight.values()]
        return LatencyView(
            ttft_s=_percentile(ttft_s for _, ttft_s in self._ttfts_s),
            tpot_s=_percentile((*(tpot_s for _, tpot_s in self._tpots_s), *running)),
            oldest_wait_s=max(waits_s, default=0.0),
            most_decodes=max((view.assigned.num, *in_flight)),
            kv_free_ratio=view.kv_free_ratio,
            max_chunk_tokens=view.max_chunk_tokens,
        )


def _tpot_so_far(request: Request, now_s: float) -> float | None:
    """Of a running request that has at least two tokens; held time counts."""
    if request.first_token_s is None or request.num_output_tokens < 2:
        return None
    return (now_s - request.first_token_s) / request.num_output_tokens


def _percentile(samples_s: Iterable[float]) -> float | None:
    """The nearest rank; None without samples."""
    ordered = sorted(samples_s)
    return ordered[ceil(len(ordered) * PERCENTILE / 100) - 1] if ordered else None
