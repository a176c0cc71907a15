"""Schedulers by name: a closed set, each the product's own scheduler under one set of rules."""

from dataclasses import dataclass
from typing import Any, TypeVar

from pipelineserve.policy.admission import Counted, KnownLengths
from pipelineserve.policy.assignment import DecodeAssignment, OnePool, SlotBound
from pipelineserve.policy.candidates import candidate_sizes
from pipelineserve.policy.chunking import ChunkPolicy, Static
from pipelineserve.policy.fastpp.delay import FastppDelay
from pipelineserve.policy.fastpp.greedy import FastppGreedy
from pipelineserve.policy.fastpp.latency_model import LatencyModelSettings
from pipelineserve.policy.fastpp.predictive import FastppPredictive
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.peers.gllm import GllmThrottling
from pipelineserve.policy.peers.sglang import SglangDynamic, fit_prompt_time, sampled_lengths
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.rebalancing import Rebalance
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.step_time import StepFeatures, StepTimeModel
from pipelineserve.policy.triage import Triage
from pipelineserve.scheduler.fastpp import FastppLaw, FastppScheduler
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_simulator.baselines.options import (
    BaselineName,
    BaselineOptions,
    LatencyTargets,
    Lengths,
)

_LawT = TypeVar("_LawT", FastppGreedy, FastppPredictive, FastppDelay)

# The backlog should be prefilled in a fifth of the TTFT target, as in the product.
_HORIZON_RATIO = 0.2


def make_scheduler(
    name: BaselineName,
    sizes: SchedulerSettings,
    targets: LatencyTargets,
    model: StepTimeModel,
    options: BaselineOptions,
) -> Scheduler:
    """A scheduler under the rules of this name, to which nothing has been submitted.

    Args:
        name: which rules.
        sizes: of buffers and KV.
        targets: what the rules try to meet, those that look at targets at all.
        model: step times as they were measured before serving.
        options: variations.
    """
    return _Maker(sizes, targets, model, options).make(name)


def predictive_law(
    sizes: SchedulerSettings,
    targets: LatencyTargets,
    model: StepTimeModel,
    options: BaselineOptions,
) -> FastppPredictive:
    """FastPP's predictive law by itself, as `FASTPP_PREDICTIVE` has it."""
    return _Maker(sizes, targets, model, options).fastpp_predictive()


def slot_admission(sizes: SchedulerSettings) -> KnownLengths:
    """The admission that FastPP's code has: it foresees the slot that it fills."""
    return KnownLengths(Counted.SLOT, sizes.num_slots - 1)


@dataclass(frozen=True, slots=True)
class _Maker:
    sizes: SchedulerSettings
    targets: LatencyTargets
    model: StepTimeModel
    options: BaselineOptions

    def make(self, name: BaselineName) -> Scheduler:  # noqa: C901, PLR0911 # one case per name
        static = Static(self.options.static_chunk_tokens)
        match name:
            case BaselineName.STATIC:
                return self._plain(static, OnePool())
            case BaselineName.PREDICTIVE:
                return self._ours(OnePool(), self.options.order)
            case BaselineName.PACED:
                triage = Triage(self.targets.ttft_s, self.options.late_share_ratio)
                return self._ours(OnePool(self.targets.tpot_s), triage)
            case BaselineName.FASTPP_STATIC:
                return self._plain(static, SlotBound())
            case BaselineName.FASTPP_GREEDY:
                return self._fastpp(self._fastpp_greedy(), None)
            case BaselineName.FASTPP_PREDICTIVE:
                return self._fastpp(self.fastpp_predictive(), None)
            case BaselineName.FASTPP_GREEDY_DELAY:
                return self._fastpp(self._fastpp_greedy(), self._delay())
            case BaselineName.FASTPP_PREDICTIVE_DELAY:
                return self._fastpp(self.fastpp_predictive(), self._delay())
            case BaselineName.SGLANG_DYNAMIC:
                return self._plain(self._sglang(), SlotBound())
            case BaselineName.GLLM_THROTTLING:
                kv_tokens = self.sizes.num_blocks * self.sizes.block_tokens
                return self._plain(GllmThrottling(kv_tokens), OnePool())

    def _plain(self, chunking: ChunkPolicy, assignment: DecodeAssignment) -> Scheduler:
        """In order of arrival, and nothing is ever held."""
        return Scheduler(
            self.sizes,
            chunking,
            assignment=assignment,
            admission=self._admission(assignment),
        )

    def _ours(self, assignment: OnePool, order: Arrival | Ageing | Triage) -> Scheduler:
        """The predictive law in the product's own way: a policy that is adopted."""
        options = self.options
        chunking = Predictive(
            model=self.model,
            candidates=self._candidates(),
            tpot_target_s=self.targets.tpot_s,
            horizon_s=_HORIZON_RATIO * self.targets.ttft_s,
            step_overhead_s=options.step_overhead_s,
            cycle_overhead_s=options.cycle_overhead_s,
        )
        holding: Rebalance | HoldNothing = HoldNothing()
        if options.hold_mode is not None:
            holding = Rebalance(options.hold_mode, self.model, options.boundaries)
        scheduler = Scheduler(
            self.sizes,
            chunking,
            assignment=assignment,
            admission=self._admission(assignment),
        )
        scheduler.adopt(SchedulingPolicy(chunking, order, holding))
        return scheduler

    def _fastpp(self, law: FastppLaw[Any], delay: FastppDelay | None) -> Scheduler:
        admission = self._admission(SlotBound())
        return FastppScheduler(self.sizes, law, delay=delay, admission=admission)

    def _fastpp_greedy(self) -> FastppGreedy:
        sizes = self._candidates()
        return self._published(
            FastppGreedy(
                self.targets.ttft_s,
                self.targets.tpot_s,
                min_tokens=sizes[0],
                max_tokens=sizes[-1],
                step_tokens=self.options.step_chunk_tokens,
                unit_tokens=self.options.step_chunk_tokens,
            )
        )

    def fastpp_predictive(self) -> FastppPredictive:
        """The law by itself."""
        sizes = self._candidates()
        return self._published(
            FastppPredictive(
                self.targets.ttft_s,
                self.targets.tpot_s,
                chunk_sizes=sizes,
                times_s=tuple(map(self._prompt_s, sizes)),
                first_tokens=self.options.static_chunk_tokens,
                tpot_ratio=self.options.fastpp_tpot_ratio,
                throughput_ratio=self.options.fastpp_throughput_ratio,
                fit=LatencyModelSettings(
                    forgetting=self.options.fastpp_forgetting,
                    unit_tokens=self.options.step_chunk_tokens,
                ),
                unit_tokens=self.options.step_chunk_tokens,
            )
        )

    def _delay(self) -> FastppDelay:
        unit_tokens = self.options.step_chunk_tokens
        return self._published(FastppDelay(self.targets.tpot_s, unit_requests=unit_tokens))

    def _published(self, law: _LawT) -> _LawT:
        return law.as_in_the_paper() if self.options.is_as_in_the_paper else law

    def _sglang(self) -> SglangDynamic:
        chunk_tokens = self.options.static_chunk_tokens
        lengths = sampled_lengths(chunk_tokens)
        return SglangDynamic(
            chunk_tokens,
            fit_prompt_time(lengths, tuple(map(self._prompt_s, lengths))),
            max_context_tokens=self.sizes.max_context_tokens,
            page_tokens=self.sizes.block_tokens,
        )

    def _admission(self, assignment: DecodeAssignment) -> KnownLengths | None:
        match self.options.lengths:
            case Lengths.UNKNOWN:
                return None
            case Lengths.KNOWN_AS_RELEASED if assignment.is_slot_bound:
                return slot_admission(self.sizes)
            case Lengths.KNOWN | Lengths.KNOWN_AS_RELEASED:
                return KnownLengths(Counted.ALL, self.sizes.num_slots - 1)

    def _candidates(self) -> tuple[int, ...]:
        options = self.options
        most = min(options.max_chunk_tokens, self.sizes.max_chunk_tokens)
        least = min(options.min_chunk_tokens, most)
        return candidate_sizes(least, most, options.step_chunk_tokens)

    def _prompt_s(self, num_tokens: int) -> float:
        """A micro-batch of one whole prompt, as it is timed before serving."""
        features = StepFeatures(squared_prefill_tokens=float(num_tokens * num_tokens))
        return self.model.predict_s(num_tokens, features) + self.options.step_overhead_s
