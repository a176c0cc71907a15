"""What is compared: the published systems as they were run, and ours."""

from dataclasses import dataclass, replace
from enum import Enum

from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve_simulator.baselines.options import (
    BaselineName,
    BaselineOptions,
    Lengths,
)
from pipelineserve_simulator.hardware.catalogue import load_profile
from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.hardware.layouts import Layout, even_layout
from pipelineserve_simulator.pipeline.options import FreeRunning, LockStep, Timing

NUM_DEVICES = 4
STATIC_CHUNKS_TOKENS = (128, 256, 384, 512, 768, 1024, 2048)
_TITLES = {
    BaselineName.FASTPP_GREEDY: "FastPP greedy",
    BaselineName.FASTPP_PREDICTIVE: "FastPP predictive",
    BaselineName.FASTPP_GREEDY_DELAY: "FastPP greedy + DS",
    BaselineName.FASTPP_PREDICTIVE_DELAY: "FastPP predictive + DS",
    BaselineName.PACED: "ours",
}


class ModelName(Enum):
    """Which of the paper's models, each with the one profile of its machine."""

    QWEN_32B = "qwen2.5-32b"
    QWEN_14B = "qwen2.5-14b"

    @property
    def profile(self) -> HardwareProfile:
        """On four A100-PCIe-40GB."""
        return load_profile(f"a100-40gb-pcie/{self.value}")


class Margins(Enum):
    """Which constants FastPP's laws have; the paper's runs used those of neither release known."""

    RELEASED = "released"
    EARLIER = "earlier"
    """As released before July 2026."""
    PAPER = "paper"
    """The rules as the paper words them."""
    FORGETS_NOTHING = "forgets nothing"
    """As released, but its predictor cannot run away from what it has learned."""


@dataclass(frozen=True, slots=True)
class System:
    """A way of serving a model on four devices.

    Attributes:
        rules: the scheduler's.
        chunk_tokens: the fixed chunk; the first one of laws that choose.
        is_tensor_parallel: one stage over all devices instead of one stage on each.
        is_lock_step: stages step together, as published; else each runs free.
        lengths: what admission knows of outputs; the published runs know them.
        margins: of FastPP's laws.
        is_by_arrival: first come, first served under our predictive law; else prompts age.
    """

    rules: BaselineName
    chunk_tokens: int = 512
    is_tensor_parallel: bool = False
    is_lock_step: bool = True
    lengths: Lengths = Lengths.KNOWN_AS_RELEASED
    margins: Margins = Margins.RELEASED
    is_by_arrival: bool = False

    @property
    def title(self) -> str:
        """As tables show it."""
        if self.is_static:
            return f"{'TP' if self.is_tensor_parallel else 'PP'}, static {self.chunk_tokens}"
        return _TITLES.get(self.rules, self.rules.value)

    @property
    def is_static(self) -> bool:
        """Whether targets do not change what it does."""
        return self.rules in {BaselineName.STATIC, BaselineName.FASTPP_STATIC}

    @property
    def timing(self) -> Timing:
        """How its micro-batches move."""
        return LockStep() if self.is_lock_step else FreeRunning()

    def layout(self, profile: HardwareProfile) -> Layout:
        """On the four devices."""
        if self.is_tensor_parallel:
            return even_layout(profile.model, 1, NUM_DEVICES)
        return even_layout(profile.model, NUM_DEVICES)

    @property
    def options(self) -> BaselineOptions:
        """Of its scheduler."""
        plain = BaselineOptions(
            static_chunk_tokens=self.chunk_tokens,
            order=Arrival() if self.is_by_arrival else Ageing(),
            lengths=self.lengths,
        )
        match self.margins:
            case Margins.RELEASED:
                return plain
            case Margins.EARLIER:
                return replace(plain, fastpp_tpot_ratio=1.08, fastpp_throughput_ratio=0.92)
            case Margins.PAPER:
                return replace(plain, is_as_in_the_paper=True)
            case Margins.FORGETS_NOTHING:
                return replace(plain, fastpp_forgetting=1.0)


def static(chunk_tokens: int) -> System:
    """A fixed chunk in FastPP's engine."""
    return System(BaselineName.FASTPP_STATIC, chunk_tokens)


# A slot of one stage is no binding, so the plain rules are those of the published engine.
TENSOR_PARALLEL = System(BaselineName.STATIC, 2048, is_tensor_parallel=True)
GREEDY = System(BaselineName.FASTPP_GREEDY)
PREDICTIVE = System(BaselineName.FASTPP_PREDICTIVE)
EARLIER_PREDICTIVE = replace(PREDICTIVE, margins=Margins.EARLIER)
PAPER_PREDICTIVE = replace(PREDICTIVE, margins=Margins.PAPER)
STEADY_PREDICTIVE = replace(PREDICTIVE, margins=Margins.FORGETS_NOTHING)
PREDICTIVE_DELAY = System(BaselineName.FASTPP_PREDICTIVE_DELAY)
OURS = System(BaselineName.PACED, is_lock_step=False, lengths=Lengths.UNKNOWN)
OURS_BY_AGEING = replace(OURS, rules=BaselineName.PREDICTIVE)
OURS_BY_ARRIVAL = replace(OURS_BY_AGEING, is_by_arrival=True)
