"""Where pairs of prompt and output length come from."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pipelineserve.load.lengths import LARGEST_TOKENS, Lengths, draw
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.workloads.curves import JointCurves


class LengthSource(Protocol):
    """Endless pairs of prompt and output tokens, each at least 1."""

    @property
    def description(self) -> str:
        """In words."""
        ...

    def pairs(self, chance: Chance) -> Iterator[tuple[int, int]]:
        """The same chance gives the same pairs, however many are taken."""
        ...


@dataclass(frozen=True, slots=True)
class IndependentLengths:
    """Prompt and output drawn by themselves, from two streams of chance."""

    prompt: Lengths
    output: Lengths

    @property
    def description(self) -> str:
        """In words."""
        return f"in: {self.prompt}; out: {self.output}"

    def pairs(self, chance: Chance) -> Iterator[tuple[int, int]]:
        """See `LengthSource`."""
        prompts, outputs = chance.stream("prompt lengths"), chance.stream("output lengths")
        while True:
            yield draw(self.prompt, prompts), draw(self.output, outputs)


@dataclass(frozen=True, slots=True)
class LogNormalPair:
    """Log-normal lengths whose logarithms are correlated.

    Attributes:
        correlation: of the logarithms.
    """

    prompt_mu: float
    prompt_sigma: float
    output_mu: float
    output_sigma: float
    correlation: float

    @property
    def description(self) -> str:
        """In words."""
        return (
            f"in: log-normal, median {math.exp(self.prompt_mu):.0f}, sigma {self.prompt_sigma:g}; "
            f"out: log-normal, median {math.exp(self.output_mu):.0f}, sigma {self.output_sigma:g}; "
            f"correlation of the logarithms {self.correlation:g}"
        )

    def pairs(self, chance: Chance) -> Iterator[tuple[int, int]]:
        """See `LengthSource`."""
        stream = chance.stream("lengths")
        rest = math.sqrt(1 - self.correlation**2)
        while True:
            one, other = stream.gauss(0, 1), stream.gauss(0, 1)
            output = self.correlation * one + rest * other
            yield (
                _tokens(math.exp(self.prompt_mu + self.prompt_sigma * one)),
                _tokens(math.exp(self.output_mu + self.output_sigma * output)),
            )


@dataclass(frozen=True, slots=True)
class FittedLengths:
    """Lengths fitted to a trace.

    Attributes:
        origin: which rows of which trace, in words.
        input_scale: factor on prompt lengths.
    """

    origin: str
    curves: JointCurves
    input_scale: float = 1.0

    @property
    def description(self) -> str:
        """In words."""
        scale = f", in x {self.input_scale:g}" if self.input_scale != 1.0 else ""
        return f"fitted to {self.origin}{scale}"

    def pairs(self, chance: Chance) -> Iterator[tuple[int, int]]:
        """See `LengthSource`."""
        for prompt, output in self.curves.draws(chance.stream("lengths")):
            yield _tokens(prompt * self.input_scale), _tokens(output)


@dataclass(frozen=True, slots=True)
class ReversedLengths:
    """Another source's outputs as prompts and its prompts as outputs."""

    source: LengthSource

    @property
    def description(self) -> str:
        """In words."""
        return f"in and out swapped of: {self.source.description}"

    def pairs(self, chance: Chance) -> Iterator[tuple[int, int]]:
        """See `LengthSource`."""
        return ((output, prompt) for prompt, output in self.source.pairs(chance))


def _tokens(length: float) -> int:
    return max(1, min(LARGEST_TOKENS, round(length)))
