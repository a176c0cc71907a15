"""The mixed load: steady short chats, and bursts of long prompts that come down on them."""

import math
from dataclasses import dataclass
from random import Random

from pipelineserve.load.prompts import SyntheticBlock, SyntheticPrompt
from pipelineserve_cli.load.plan import Bound, LoadPlan, PlannedRequest


@dataclass(frozen=True)
class Kind:
    """One kind of request: tokens in and out."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class MixedLoad:
    """What arrives.

    Attributes:
        duration_s: in which requests arrive.
        chats_per_s: of a Poisson process.
        burst_period_s: mean time between two bursts.
        burst_prompts: how many come within `burst_span_s`.
    """

    duration_s: float = 40.0
    chat: Kind = Kind(48, 64)
    chats_per_s: float = 0.5
    long: Kind = Kind(400, 16)
    burst_period_s: float = 10.0
    burst_prompts: int = 3
    burst_span_s: float = 1.0

    def plan(self, seed: int, key: str) -> LoadPlan:
        """The same seed gives the same requests at the same times.

        Another key gives other tokens, so that no run is served from the prefix cache of another.
        """
        chance = Random(seed)
        arrivals = [
            (at_s, self.chat) for at_s in _poisson(chance, self.chats_per_s, self.duration_s)
        ]
        num_bursts = math.floor(self.duration_s / self.burst_period_s)
        for burst in range(num_bursts):
            begin_s = (burst + 0.25 + 0.5 * chance.random()) * self.burst_period_s
            arrivals += [
                (begin_s + chance.random() * self.burst_span_s, self.long)
                for _ in range(self.burst_prompts)
            ]
        requests = tuple(
            PlannedRequest(
                index,
                at_s,
                SyntheticPrompt((SyntheticBlock(f"{key}, {index}", kind.prompt_tokens),)),
                kind.output_tokens,
            )
            for index, (at_s, kind) in enumerate(sorted(arrivals, key=lambda entry: entry[0]))
        )
        return LoadPlan(requests, seed, "chats and bursts", "two kinds", "", Bound.DURATION)


def _poisson(chance: Random, rate_per_s: float, duration_s: float) -> list[float]:
    times_s: list[float] = []
    at_s = chance.expovariate(rate_per_s)
    while at_s < duration_s:
        times_s.append(at_s)
        at_s += chance.expovariate(rate_per_s)
    return times_s
