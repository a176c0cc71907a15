"""FastPP's step-time predictor watched while it works: what it said before it learned."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.fastpp.latency_model import FastppStep, on_a_line
from pipelineserve.policy.fastpp.predictive import FastppPredictive, FastppPredictiveMemory
from pipelineserve.policy.fastpp.views import FastppView
from pipelineserve_simulator.reproduce.figures import PredictorErrors


@dataclass(slots=True)
class ErrorSums:
    """What is added up over steps."""

    num_steps: int = 0
    tokens_only: float = 0.0
    candidate_only: float = 0.0
    full: float = 0.0

    def errors(self) -> PredictorErrors | None:
        """The means; None before the first step."""
        if self.num_steps == 0:
            return None
        num = self.num_steps
        return PredictorErrors(
            num, self.tokens_only / num, self.candidate_only / num, self.full / num
        )


@dataclass(frozen=True, slots=True)
class WatchedPredictive:
    """The law itself; each step is compared with its prediction before the law learns from it.

    Judged are the steps that it learns from, by the micro-batch that it takes for the slowest: it
    predicts no others. Their number is told, so that what is left out can be seen.

    Attributes:
        line_s: seconds at 0 tokens, and per token, of the line through the law's table.
        sums: where errors are added up.
    """

    law: FastppPredictive
    line_s: tuple[float, float]
    sums: ErrorSums

    @property
    def ttft_target_s(self) -> float:
        """The law's."""
        return self.law.ttft_target_s

    def start(self) -> FastppPredictiveMemory:
        """The law's."""
        return self.law.start()

    def is_due(self, step_index: int, num_slots: int) -> bool:
        """The law's."""
        return self.law.is_due(step_index, num_slots)

    def decide(
        self, memory: FastppPredictiveMemory, view: FastppView
    ) -> tuple[ChunkDecision, FastppPredictiveMemory]:
        """The law's."""
        return self.law.decide(memory, view)

    def observe(self, memory: FastppPredictiveMemory, step: FastppStep) -> FastppPredictiveMemory:
        """Compare, then let the law learn."""
        learned = self.law.observe(memory, step)
        if learned.model.num_updates > memory.model.num_updates:
            self._compare(memory, step)
        return learned

    def _compare(self, memory: FastppPredictiveMemory, step: FastppStep) -> None:
        model, fit, took_s = memory.model, self.law.fit, step.step_time_s
        predictions = [
            (_candidate(batch.num_tokens, model.chunk_sizes), batch) for batch in step.in_flight
        ]
        size, full_s, slowest = max(
            (
                (size, model.predict_s(size, batch.features, fit), batch)
                for size, batch in predictions
            ),
            key=itemgetter(0, 1),
        )
        self.sums.num_steps += 1
        self.sums.full += abs(full_s - took_s) / took_s
        self.sums.tokens_only += abs(self._on_line_s(slowest.num_tokens) - took_s) / took_s
        self.sums.candidate_only += abs(self._on_line_s(size) - took_s) / took_s

    def _on_line_s(self, num_tokens: int) -> float:
        at_zero_s, per_token_s = self.line_s
        return at_zero_s + per_token_s * num_tokens


def watch(law: FastppPredictive, sums: ErrorSums) -> WatchedPredictive:
    """The law with its line, fitted to its own table as the paper fits one."""
    sizes = law.chunk_sizes
    times_s = on_a_line(sizes, law.times_s)
    per_token_s = (times_s[-1] - times_s[0]) / (sizes[-1] - sizes[0])
    return WatchedPredictive(law, (times_s[0] - per_token_s * sizes[0], per_token_s), sums)


def _candidate(num_tokens: int, sizes: Sequence[int]) -> int:
    return next((size for size in sizes if size >= num_tokens), sizes[-1])
