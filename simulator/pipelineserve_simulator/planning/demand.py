"""What is asked of a deployment: a workload, and the few figures of it that formulas need."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.summaries import percentile
from pipelineserve.policy.control.feasibility import Load
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.workloads.requests import SimulatedRequest, Workload

_SAMPLE_SEED = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """Figures of a workload's requests, from one sample of them.

    Attributes:
        rate_per_s: mean arrivals.
        prompt_tokens, squared_prompt_tokens: means of a prompt's length and of its square.
        long_prompt_tokens: the length at the TTFT target's percentile.
        output_tokens: mean length of an output.
        decode_context_tokens: mean context over all decode steps.
        longest_tokens: prompt and output of the longest request together.
    """

    rate_per_s: float
    prompt_tokens: float
    squared_prompt_tokens: float
    long_prompt_tokens: float
    output_tokens: float
    decode_context_tokens: float
    longest_tokens: int

    def load_at(self, rate_per_s: float) -> Load:
        """The same requests at another rate, as the feasibility formula wants them."""
        return Load(
            prefill_tokens_per_s=rate_per_s * self.prompt_tokens,
            decode_tokens_per_s=rate_per_s * self.output_tokens,
            prompt_tokens=self.prompt_tokens,
            squared_prompt_tokens=self.squared_prompt_tokens,
            long_prompt_tokens=self.long_prompt_tokens,
            decode_context_tokens=self.decode_context_tokens,
        )


def demand_of(workload: Workload, ttft_percent: float, rate_per_s: float | None) -> Demand:
    """Measure a workload.

    Args:
        workload: at least two requests that do not come all at once.
        ttft_percent: the percentile at which TTFT is judged.
        rate_per_s: its mean rate if that is known; counted in the sample if None.

    Raises:
        InvalidInputError: the requests have no rate.
    """
    requests = workload.requests(Chance(_SAMPLE_SEED))
    prompts = sorted(request.prompt_tokens for request in requests)
    outputs = sum(request.output_tokens for request in requests)
    # A decode's context grows by one with each token, so on average it holds half of the output.
    contexts = sum(r.output_tokens * (r.prompt_tokens + r.output_tokens / 2) for r in requests)
    return Demand(
        rate_per_s=rate_per_s or _counted_rate_per_s(requests),
        prompt_tokens=sum(prompts) / len(prompts),
        squared_prompt_tokens=sum(tokens * tokens for tokens in prompts) / len(prompts),
        long_prompt_tokens=percentile(prompts, ttft_percent),
        output_tokens=outputs / len(requests),
        decode_context_tokens=contexts / outputs,
        longest_tokens=max(r.prompt_tokens + r.output_tokens for r in requests),
    )


def _counted_rate_per_s(requests: Sequence[SimulatedRequest]) -> float:
    span_s = requests[-1].arrival_s - requests[0].arrival_s if requests else 0.0
    if span_s <= 0.0:
        text = f"got {len(requests)} requests at one time, expected two or more one after the other"
        raise InvalidInputError("the workload", [Fault("requests", text)])
    return (len(requests) - 1) / span_s


@dataclass(frozen=True, slots=True)
class ReplicaShare:
    """What one of several replicas gets of a workload: every `num_replicas`-th request.

    Attributes:
        source: the whole workload.
        seed: of the whole workload's chance, the same for all replicas, whatever chance they have.
        replica_index: which of them.
    """

    source: Workload
    seed: int
    num_replicas: int
    replica_index: int

    @property
    def description(self) -> str:
        """The whole workload, and which part of it."""
        return f"{self.source.description}; every {self.num_replicas}. request"

    def requests(self, chance: Chance) -> tuple[SimulatedRequest, ...]:
        """See `Workload`; numbered anew, arrivals as they were."""
        del chance
        whole = self.source.requests(Chance(self.seed))
        mine = islice(whole, self.replica_index, None, self.num_replicas)
        return tuple(
            SimulatedRequest(
                index,
                request.arrival_s,
                request.prompt_tokens,
                request.output_tokens,
                request.client_id,
                request.priority,
            )
            for index, request in enumerate(mine)
        )
