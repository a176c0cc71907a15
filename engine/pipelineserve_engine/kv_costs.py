"""What recomputing and copying KV costs on the slowest stage, measured while serving."""

from collections import deque
from statistics import median

from pipelineserve.policy.preemption import UNMEASURED, KvCosts
from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve_engine.stage_messages import ReadyReport, StepReport

_NUM_SAMPLES = 15
# Fewer tokens tell the cost of a step, not of a token.
_MIN_PREFILL_TOKENS = 8


class KvCostMeter:
    """Keeps `costs` up to date.

    The time of a prompt's token is the median over the last steps that mostly prefilled and copied
    nothing, so that single slow steps do not count. The slowest stage counts, since the others wait
    for it.
    """

    def __init__(self) -> None:
        self.costs: KvCosts = UNMEASURED
        self._tokens: dict[int, int] = {}
        self._copy_s: dict[int, float] = {}
        self._samples: dict[int, deque[float]] = {}

    def on_ready(self, report: ReadyReport) -> None:
        """A stage has measured its copies; 0 if it has no host blocks."""
        self._copy_s[report.stage_index] = report.copy_s_per_block
        self._update()

    def on_sent(self, micro_batch: MicroBatch) -> None:
        """Remember a micro-batch whose steps will tell what prefilling costs."""
        num_decodes = micro_batch.num_decodes
        num_prefill = micro_batch.num_tokens - num_decodes
        if not micro_batch.copies and num_prefill >= max(num_decodes, _MIN_PREFILL_TOKENS):
            self._tokens[micro_batch.sequence] = micro_batch.num_tokens

    def on_step(self, report: StepReport) -> None:
        """A stage has run a micro-batch."""
        is_last_stage = report.token_ids is not None
        take = self._tokens.pop if is_last_stage else self._tokens.get
        num_tokens = take(report.sequence, None)
        if num_tokens is not None:
            samples = self._samples.setdefault(report.stage_index, deque(maxlen=_NUM_SAMPLES))
            samples.append((report.end_s - report.start_s) / num_tokens)
            self._update()

    def abandon(self) -> None:
        """What is in flight never comes back."""
        self._tokens.clear()

    def _update(self) -> None:
        copy_s = max(self._copy_s.values(), default=0.0)
        token_s = max((median(samples) for samples in self._samples.values()), default=None)
        self.costs = KvCosts(token_s, copy_s or None)
