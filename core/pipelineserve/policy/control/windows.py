"""Latencies and load over a moving window, in slices, so that memory stays bounded."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pipelineserve.policy.control.feasibility import Load
from pipelineserve.policy.control.heard import Ending, RequestSeen
from pipelineserve.policy.control.histograms import Histogram, merge_all
from pipelineserve.policy.control.objectives import LatencyGoal

NUM_SLICES = 30
_LEAST_SPAN_S = 1.0


@dataclass(frozen=True, slots=True)
class Slice:
    """The requests that ended within one slice of time.

    Attributes:
        start_s: when it began; the next one's start ends it.
        num_judged: requests that the targets apply to: those that the client gave up do not count.
        num_attained: of these, the ones that met every target.
        first_waiting_tokens: prompt tokens in the queue when it began.
    """

    start_s: float
    ttft: Histogram = field(default_factory=Histogram)
    tpot: Histogram = field(default_factory=Histogram)
    prompt_lengths: Histogram = field(default_factory=Histogram)
    num_judged: int = 0
    num_attained: int = 0
    num_prompts: int = 0
    prompt_tokens: int = 0
    squared_prompt_tokens: int = 0
    output_tokens: int = 0
    first_waiting_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """Slices that touch the last `length_s` seconds, oldest first."""

    length_s: float
    slices: tuple[Slice, ...] = ()

    def moved(self, now_s: float, length_s: float, waiting_tokens: int) -> "Window":
        """Drop what has become too old and begin a slice if one is due."""
        kept = [
            old
            for old, end_s in zip(self.slices, self._ends_s(now_s), strict=True)
            if end_s > now_s - length_s
        ]
        if not kept or now_s - kept[-1].start_s >= length_s / NUM_SLICES:
            kept.append(Slice(now_s, first_waiting_tokens=waiting_tokens))
        return Window(length_s, tuple(kept))

    def plus(
        self, requests: Iterable[RequestSeen], ttft: LatencyGoal | None, tpot: LatencyGoal | None
    ) -> "Window":
        """Count these requests in the latest slice, which `moved` has made sure of."""
        latest = self.slices[-1]
        for request in requests:
            latest = _with_request(latest, request, ttft, tpot)
        return replace(self, slices=(*self.slices[:-1], latest))

    def unjudged(self) -> "Window":
        """Forget who attained targets, since these have changed; latencies stay."""
        return replace(
            self,
            slices=tuple(replace(old, num_judged=0, num_attained=0) for old in self.slices),
        )

    @property
    def ttft(self) -> Histogram:
        """Of all slices."""
        return merge_all(old.ttft for old in self.slices)

    @property
    def tpot(self) -> Histogram:
        """Of all slices."""
        return merge_all(old.tpot for old in self.slices)

    @property
    def num_judged(self) -> int:
        """Of all slices."""
        return sum(old.num_judged for old in self.slices)

    @property
    def num_attained(self) -> int:
        """Of all slices."""
        return sum(old.num_attained for old in self.slices)

    def load(
        self, now_s: float, waiting_tokens: int, context_tokens: float, percentile: int
    ) -> Load | None:
        """What arrives, as far as it can be told from what ended and what is still waiting.

        A queue that grew over the window holds tokens that arrived and have not ended, and they
        count. None without any request.

        Args:
            now_s: the end of the window.
            waiting_tokens: prompt tokens in the queue now.
            context_tokens: mean context of a decode.
            percentile: which prompt length counts as long.
        """
        num = sum(old.num_prompts for old in self.slices)
        if num == 0:
            return None
        span_s = max(_LEAST_SPAN_S, now_s - self.slices[0].start_s)
        tokens = sum(old.prompt_tokens for old in self.slices)
        if tokens == 0:
            return None
        grown = max(0, waiting_tokens - self.slices[0].first_waiting_tokens)
        prefill_per_s = (tokens + grown) / span_s
        outputs = sum(old.output_tokens for old in self.slices)
        lengths = merge_all(old.prompt_lengths for old in self.slices)
        return Load(
            prefill_tokens_per_s=prefill_per_s,
            decode_tokens_per_s=prefill_per_s * outputs / tokens,
            prompt_tokens=tokens / num,
            squared_prompt_tokens=sum(old.squared_prompt_tokens for old in self.slices) / num,
            long_prompt_tokens=lengths.percentile(percentile) or 0.0,
            decode_context_tokens=context_tokens,
        )

    def _ends_s(self, now_s: float) -> list[float]:
        return [*(later.start_s for later in self.slices[1:]), now_s][: len(self.slices)]


def _with_request(
    old: Slice, request: RequestSeen, ttft: LatencyGoal | None, tpot: LatencyGoal | None
) -> Slice:
    is_judged = request.ending is not Ending.CANCELLED
    is_attained = is_judged and _attains(request, ttft, tpot)
    is_served = request.ttft_s is not None
    length = request.num_prompt_tokens if is_served else 0
    return replace(
        old,
        ttft=old.ttft if request.ttft_s is None else old.ttft.plus((request.ttft_s,)),
        tpot=old.tpot if request.tpot_s is None else old.tpot.plus((request.tpot_s,)),
        prompt_lengths=old.prompt_lengths.plus((float(length),) if is_served else ()),
        num_judged=old.num_judged + is_judged,
        num_attained=old.num_attained + is_attained,
        num_prompts=old.num_prompts + is_served,
        prompt_tokens=old.prompt_tokens + length,
        squared_prompt_tokens=old.squared_prompt_tokens + length * length,
        output_tokens=old.output_tokens + request.num_output_tokens,
    )


def _attains(request: RequestSeen, ttft: LatencyGoal | None, tpot: LatencyGoal | None) -> bool:
    """Whether it met every target; one that never had a first token met none."""
    if request.ending in (Ending.ERROR, Ending.REJECTED) or request.ttft_s is None:
        return False
    is_early = ttft is None or request.ttft_s <= ttft.target_s
    is_fast = tpot is None or request.tpot_s is None or request.tpot_s <= tpot.target_s
    return is_early and is_fast
